"""A batch worked on in parts trains like the whole batch."""

import keras
import numpy as np
import pytest

import plsc_tf
from tests.conformance import head_case
from tests.conformance.head_case import Case, close
from tests.conformance.head_matrix import sampled_classes
from tests.marks import slow
from tests.networks import flat

FEATURES = 12  # pictures of 2 × 2


def make_model(case, parts):
    """A classifier whose backbone is one matrix, and what the oracle needs of it."""
    classes, rate, _ = head_case.SAMPLINGS[case.sampling]
    options = head_case.LOSSES[case.loss][0] | {"scale": case.scale}
    keras.utils.set_random_seed(0)
    with plsc_tf.strategy(case.replicas).scope():
        dense = keras.layers.Dense(5, use_bias=False)
        if case.dense:
            head = plsc_tf.DenseHead(classes, **options)
        else:
            head = plsc_tf.ShardedHead(classes, sample_rate=rate, **options)
        model = plsc_tf.Classifier(flat((2, 2, 3), dense), head)
        options = {"metrics": ["accuracy"], "gradient_accumulation_steps": parts}
        model.compile(head_case.OPTIMIZERS[case.optimizer][0](), **options)
    if case.loss in head_case.LENGTHS:  # norms from 4 to 20
        dense.kernel.assign(8 * dense.kernel)
    example = head_case.make_example(case)
    head.set_weights_from_numpy(example.weight)
    example.kernel = dense.kernel.numpy().astype("f8")
    example.bias[:] = 0
    return model, example


def make_batches(example, size):
    """Two of them; the pictures are exact in float32 before and after the scaling."""
    rng = np.random.default_rng(2)
    inputs = rng.integers(-127, 128, (2, size, FEATURES)) / 128
    weights = rng.integers(1, 5, (2, size)) / 4
    weights[:, 1] = 0
    return list(zip(inputs, example.labels[:, :size], weights, strict=True))


@pytest.mark.parametrize(
    ("case", "parts", "size"),
    [
        slow(Case("arcface", 1, optimizer="global_clipnorm"), 3, 12),
        (Case("curricularface", 2, sampling="sampled", optimizer="adam"), 2, 12),
        slow(Case("softmax", 2, "kept", "positives", "global_clipnorm"), 2, 12),
        slow(Case("magface", 3, optimizer="clipnorm", dense=True), 2, 12),
        (Case("adaface", 1, optimizer="nesterov", dense=True), 2, 12),
        # Two examples are added that weigh nothing.
        (Case("smoothed_arcface", 1, optimizer="adamw"), 3, 10),
    ],
    ids=str,
)
def test_parts_of_a_batch_equal_the_oracle(case, parts, size):
    model, example = make_model(case, parts)
    expected = head_case.Expected(case, example)
    for number, batch in enumerate(make_batches(example, size)):
        inputs, labels, weights = batch
        # Equal parts of what every replica gets.
        index = np.arange(size)
        if case.loss in ("adaface", "curricularface"):
            cut = index.reshape(case.replicas, parts, -1)
            order = [cut[:, part].ravel() for part in range(parts)]
        else:
            order = [index]
        sampled = sampled_classes(model.head, model.strategy, labels, number)
        images = (128 * inputs + 127.5).reshape(-1, 2, 2, 3).astype(np.float32)
        result = model.train_on_batch(images, labels, weights)
        wanted = expected.step_in_parts(batch, order, sampled)
        assert result == pytest.approx(wanted, rel=1e-5)
    kernel = model.backbone.trainable_variables[0].numpy()
    close(kernel, expected.weights["kernel"], 1e-5)
    for name, rows in model.head.arrays().items():
        close(rows.read(0, rows.shape[0]), expected.weights[name], 1e-5)
    for name, rows in model.trainer.updater.slots().items():
        close(rows.read(0, rows.shape[0]), expected.whole_slots()[name], 1e-5)
    for name, variable in model.head.state_variables.items():
        close(variable.numpy(), expected.state[name], 1e-5)
    assert model.optimizer.iterations.numpy() == 2
