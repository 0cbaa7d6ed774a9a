"""`linear_cross_entropy` against float64, its memory, and training with Keras."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf

EXAMPLES, CLASSES, FEATURES = 70, 50, 8
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32")
WEIGHT = RNG.normal(size=(CLASSES, FEATURES)).astype("float32")
BIAS = RNG.normal(size=CLASSES).astype("float32")
LABELS = np.where(np.arange(EXAMPLES) % 9, RNG.integers(0, CLASSES, EXAMPLES), -100)
FACTORS = RNG.uniform(size=EXAMPLES).astype("float32")
# 32 examples, the fewest, at a time: three blocks, of which the last two overlap.
SMALL = {"logits_mb": 0}
XLA = functools.partial(tf.function, jit_compile=True)


def oracle(smoothing, factors):
    """Losses times factors, and gradients of their sum, in float64."""
    x, weight, bias = (a.astype(np.float64) for a in (X, WEIGHT, BIAS))
    logits = x @ weight.T + bias
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    target = np.eye(CLASSES)[np.maximum(LABELS, 0)] * (1 - smoothing)
    target += smoothing / CLASSES
    errors = (np.exp(logits) - target) * factors[:, None]
    losses = -(target * logits).sum(axis=1) * factors
    return losses, [errors @ weight, errors.T @ x, errors.sum(axis=0)]


def gradients(upstream=1.0, x=X, **options):
    x, weight, bias = variables = [tf.constant(a) for a in (x, WEIGHT, BIAS)]
    with tf.GradientTape() as tape:
        tape.watch(variables)
        loss = plsc_tf.linear_cross_entropy(x, weight, LABELS, bias, **options)
        objective = tf.reduce_sum(loss * upstream)
    return loss, tape.gradient(objective, variables)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function, XLA])
def test_loss_and_gradients_are_those_of_float64(reduction, smoothing, wrap):
    counted = (LABELS >= 0).astype(np.float64)
    factors = counted * FACTORS / (counted.sum() if reduction == "mean" else 1)
    upstream = np.linspace(1, 2, EXAMPLES) if reduction == "none" else 3.0
    losses, _ = oracle(smoothing, factors)
    _, expected = oracle(smoothing, factors * upstream)
    call = wrap(
        lambda: gradients(
            tf.constant(upstream, tf.float32),
            reduction=reduction,
            sample_weight=FACTORS,
            label_smoothing=smoothing,
            **SMALL,
        )
    )
    for _ in range(2):  # a second call doesn't find sums of the first
        loss, found = call()
        total = losses if reduction == "none" else losses.sum()
        np.testing.assert_allclose(loss, total, rtol=1e-5, atol=1e-6)
        for value, array in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, array, rtol=0, atol=1e-5)


def test_margins_are_those_of_the_head():
    options = {"margins": plsc_tf.ARCFACE, "scale": 8.0, "reduction": "sum"}
    x, weight, labels = tf.constant(X), tf.constant(WEIGHT), np.maximum(LABELS, 0)
    head = plsc_tf.DenseHead(CLASSES, loss=plsc_tf.ARCFACE, scale=8.0)
    head.build(FEATURES, tf.distribute.get_strategy())
    head.set_weights_from_numpy(WEIGHT)
    step = head.loss_and_gradients(x, tf.constant(labels), tf.ones([EXAMPLES]))
    with tf.GradientTape() as tape:
        tape.watch([x, weight])
        loss = plsc_tf.linear_cross_entropy(x, weight, labels, **options, **SMALL)
    found = tape.gradient(loss, [x, weight])
    np.testing.assert_allclose(loss, tf.reduce_sum(step.losses), rtol=1e-5)
    np.testing.assert_allclose(found[0], step.embedding_gradients, atol=1e-5)
    (expected,) = head.second_pass.whole_gradients(step.pending)
    np.testing.assert_allclose(found[1], expected, atol=1e-5)


def operations(graph):
    """All operations of a graph and of the functions it calls."""
    definition = graph.as_graph_def(add_shapes=True)
    for nodes in (definition.node, *(f.node_def for f in definition.library.function)):
        yield from nodes


@pytest.mark.parametrize("watched", ["nothing", "x", "x weight"])
def test_no_tensor_holds_all_logits_and_frozen_weights_cost_nothing(watched):
    batch, classes = 2048, 20_000

    @tf.function
    def step(x, weight, labels):
        tensors = {"x": x, "weight": weight}
        with tf.GradientTape() as tape:
            wanted = [tensors[name] for name in watched.split() if name in tensors]
            tape.watch(wanted)
            loss = plsc_tf.linear_cross_entropy(x, weight, labels, logits_mb=4)
        return loss, tape.gradient(loss, wanted)

    graph = step.get_concrete_function(
        tf.TensorSpec([batch, 16]),
        tf.TensorSpec([classes, 16]),
        tf.TensorSpec([batch], tf.int32),
    ).graph
    sizes, products = [], 0
    for node in operations(graph):
        products += node.op == "MatMul"
        for shape in node.attr["_output_shapes"].list.shape:
            sizes.append(np.prod([max(d.size, 1) for d in shape.dim]))
    assert max(sizes) <= classes * 64  # a block has 50 examples
    # The products of a tile: logits, sums of exponentials, and two gradients.
    assert products == {"nothing": 2, "x": 3, "x weight": 4}[watched]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype):
    _, expected = oracle(0.0, (LABELS >= 0) / (LABELS >= 0).sum())
    loss, found = gradients(x=tf.constant(X, dtype))
    assert (loss.dtype, found[0].dtype, found[1].dtype) == ("float32", dtype, "float32")
    for value, array in zip(found, expected, strict=True):
        np.testing.assert_allclose(tf.cast(value, "float32"), array, atol=2e-3)


def test_a_persistent_tape_has_first_derivatives_and_no_second_ones():
    any_batch = tf.TensorSpec([None, FEATURES]), tf.TensorSpec([None], tf.int64)
    x, labels = tf.constant(X), tf.constant(LABELS)

    @tf.function(input_signature=any_batch)
    def call(x, labels):
        return plsc_tf.linear_cross_entropy(x, WEIGHT, labels, BIAS)

    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        loss = call(x, labels)
    (_, expected) = gradients()
    for _ in range(2):
        np.testing.assert_allclose(tape.gradient(loss, x), expected[0], atol=1e-6)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        loss = plsc_tf.linear_cross_entropy(x, WEIGHT, labels, BIAS)
        first = tape.gradient(loss, x)
    assert tape.gradient(first, x) is None


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"labels": LABELS[:3]}, ValueError, r"labels=\(3,\)"),
        ({"weight": WEIGHT.T}, ValueError, r"weight=\(8, 50\)"),
        ({"bias": BIAS[:3]}, ValueError, r"bias=\(3,\)"),
        ({"labels": X[:, 0]}, ValueError, "labels integers.*labels=float32"),
        ({"weight": WEIGHT > 0}, ValueError, "bias floats.*weight=bool"),
        ({"bias": np.arange(CLASSES)}, ValueError, "bias floats.*bias=int64"),
        ({"x": X.astype("float64")}, ValueError, "x must be float32"),
        ({"reduction": "max"}, ValueError, "mean, sum, none"),
        ({"margins": plsc_tf.ARCFACE}, ValueError, "no bias"),
        ({"margins": plsc_tf.ADAFACE, "bias": None}, ValueError, "without a state"),
        ({"margins": 0}, ValueError, "MarginLoss.*margins=0"),
        ({"sample_weight": FACTORS[:, None]}, ValueError, r"sample_weight=\(70, 1\)"),
        ({"label_smoothing": 1}, ValueError, "label_smoothing"),
        ({"labels": LABELS + 60}, tf.errors.InvalidArgumentError, "must be in .0, 50"),
    ],
)
def test_wrong_arguments(changes, error, message):
    arguments = {"x": X, "weight": WEIGHT, "labels": LABELS, "bias": BIAS} | changes
    with pytest.raises(error, match=message):
        plsc_tf.linear_cross_entropy(**arguments)


@pytest.mark.parametrize("sizes", [(70, 3, 3), (3, 70, 70), (70, 70, 1)])
def test_shapes_that_only_a_step_knows_are_checked(sizes):
    @tf.function(input_signature=[tf.TensorSpec([None])] * 3)
    def call(x, labels, factors):
        x, labels = x[:, None] * tf.ones([1, FEATURES]), tf.cast(labels, tf.int64)
        return plsc_tf.linear_cross_entropy(x, WEIGHT, labels, sample_weight=factors)

    with pytest.raises(tf.errors.InvalidArgumentError, match="must have the same"):
        call(*map(tf.ones, sizes))


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function, XLA])
def test_no_examples_have_no_loss_and_no_gradients(wrap):
    weight = tf.constant(WEIGHT)

    def call(x, labels):
        with tf.GradientTape() as tape:
            tape.watch([x, weight])
            loss = plsc_tf.linear_cross_entropy(x, weight, labels, logits_mb=np.inf)
        return loss, *tape.gradient(loss, [x, weight])

    loss, *found = wrap(call)(tf.constant(X[:0]), tf.constant(LABELS[:0]))
    assert loss == 0
    assert [one.shape for one in found] == [(0, FEATURES), WEIGHT.shape]
    assert not np.any(found[1])


def test_masked_examples_are_ignored_in_any_type_of_labels():
    layer = plsc_tf.LinearCrossEntropy(200)
    mask, labels = tf.constant([True, False] * 3), np.arange(6)
    expected = layer(X[:6:2], labels[::2])
    for dtype in "uint8", "int32":
        loss = layer(X[:6], labels.astype(dtype), mask=mask)
        np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_a_layer_has_classes_or_an_embedding():
    dense, embedding = keras.layers.Dense(5), keras.layers.Embedding(5, 8)
    wrong = [(None, None), (0, None), (2.5, None), (None, dense), (5, embedding)]
    for classes, tied in wrong:
        with pytest.raises(ValueError, match="needs either num_classes"):
            plsc_tf.LinearCrossEntropy(classes, tied_to=tied)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_keras_model_learns_and_is_loaded_again(tied, policy, tmp_path):
    with keras.device("cpu"):
        embedding = keras.layers.Embedding(30, 16, mask_zero=True, dtype=policy)
        tokens, labels = (keras.Input([None], dtype="int32") for _ in range(2))
        hidden = keras.layers.Dense(16, dtype=policy)(embedding(tokens))
        last = plsc_tf.LinearCrossEntropy(
            **({"tied_to": embedding} if tied else {"num_classes": 30})
        )
        model = keras.Model([tokens, labels], last(hidden, labels))
    model.compile(keras.optimizers.Adam(0.02))
    words = np.tile(np.arange(1, 30), (8, 1))
    data = tf.data.Dataset.from_tensors(((words, np.roll(words, -1, 1)),)).repeat(60)
    assert model.fit(data, epochs=2, verbose=0).history["loss"][-1] < 0.5
    next_words = keras.Model(tokens, last(hidden)).predict(words, verbose=0)
    assert (next_words.argmax(-1) == np.roll(words, -1, 1)).mean() > 0.9
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    expected = model.evaluate(data.take(1), verbose=0)
    assert loaded.evaluate(data.take(1), verbose=0) == pytest.approx(expected, abs=1e-6)
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    assert len(model.trainable_variables) == (4 if tied else 5)
