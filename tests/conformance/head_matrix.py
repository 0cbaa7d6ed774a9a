"""Runs heads beside the oracle; as a program, a part of the whole matrix.

The backbone is one matrix, so that gradients of the embeddings, a norm over backbone
and head, and moved embeddings in the second step are all there.
"""

import itertools
import sys
import traceback

import keras
import numpy as np
import tensorflow as tf

import plsc_tf
from plsc_tf.parallel import collectives
from plsc_tf.training.updates import Updater
from tests.conformance import head_case as cases
from tests.conformance.head_case import LOSSES, SMOOTHED, Case, Expected, close


class Stepper:
    """A head, the matrix before it, and their optimizer, on replicas."""

    def __init__(self, case, example, slot_dtype="float32", **options):
        self.case = case
        classes, rate, tile_rows = (cases.SAMPLINGS | cases.LARGE)[case.sampling]
        tiled, kept = cases.TILINGS[case.tiling]
        dtype = keras.config.floatx()
        tile_bytes = np.dtype(dtype).itemsize * (tile_rows or 1) * cases.BATCH
        settings = {"scale": case.scale, "logits_mb": kept * tile_bytes / 1e6}
        settings["sub_centers"] = case.sub_centers
        kind = plsc_tf.DenseHead if case.dense else plsc_tf.ShardedHead
        if not case.dense:
            settings["sample_rate"] = rate
            settings["tile_rows"] = tile_rows if tiled else None
        settings |= LOSSES[case.loss][0] | options
        self.strategy = plsc_tf.strategy(case.replicas)
        with self.strategy.scope():
            self.kernel = keras.Variable(example.kernel, dtype=dtype, name="kernel")
            self.head = kind(classes, **settings)
            self.head.build(cases.EMBEDDING, self.strategy)
            self.optimizer = cases.OPTIMIZERS[case.optimizer][0]()
        arrays = self.head.arrays()
        arrays["weight"].write(0, example.weight)
        if "bias" in arrays:
            arrays["bias"].write(0, example.bias)
        replicated = [self.kernel]
        if case.dense:
            replicated += self.head.variables_replicated
        self.updater = Updater(
            self.optimizer,
            self.strategy,
            replicated,
            None if case.dense else self.head,
            slot_dtype=slot_dtype,
        )
        self._step = tf.function(
            lambda *batch: self.strategy.run(self._replica, batch), autograph=False
        )

    def step(self, inputs, labels, example_weights):
        """Runs one, and updates everything.

        Returns:
            dict of `losses`, `gradients` of the embeddings, with ranks `ranks`, and
            losses and ranks of a pass without gradients, "losses alone" and
            "ranks alone", and with sampling `sampled`, the classes that took part.
        """
        dtype = keras.config.floatx()
        outcome = self._step(
            tf.constant(inputs, dtype),
            tf.constant(labels, tf.int64),
            tf.constant(example_weights / example_weights.sum(), dtype),
        )
        parts = {
            name: [p.numpy() for p in self.strategy.experimental_local_results(value)]
            for name, value in outcome.items()
        }
        found = {name: np.concatenate(value) for name, value in parts.items()}
        if "sampled" in parts:
            found["sampled"] = join_samples(self.head, parts["sampled"])
        return found

    def _replica(self, inputs, labels, sample_weights):
        x, y, u = (collectives.own_slice(v) for v in (inputs, labels, sample_weights))
        with tf.GradientTape() as tape:
            embeddings = x @ self.kernel.value
        step = tf.convert_to_tensor(self.optimizer.iterations)
        batch = embeddings, y, u, self.case.ranks
        outcome = self.head.loss_and_gradients(*batch, step=step)
        if self.case.ranks:
            alone = self.head.loss_and_gradients(*batch, step=step, gradients=False)
            assert alone.pending == {}  # no products are kept
        given = [outcome.embedding_gradients]
        gradients = [tape.gradient(embeddings, self.kernel.value, given)]
        pending = outcome.pending
        if self.case.dense:
            gradients += self.head.second_pass.whole_gradients(pending)
        finite, _ = self.updater.apply(
            gradients, None if self.case.dense else pending, tf.constant(True)
        )
        self.head.keep_state(outcome.state, finite)
        found = {"losses": outcome.losses, "gradients": outcome.embedding_gradients}
        if self.case.ranks:
            found["ranks"] = outcome.ranks
            found |= {"losses alone": alone.losses, "ranks alone": alone.ranks}
        if "chosen" in pending:
            found["sampled"] = pending["chosen"]
        return found

    def weights(self):
        """`{name: array}` of the matrix and of the head; all copies are the same."""
        copies = self.strategy.experimental_local_results(self.kernel.value)
        for copy in copies[1:]:
            np.testing.assert_array_equal(copy, copies[0])
        arrays = self.head.arrays().items()
        whole = {name: rows.read(0, rows.shape[0]) for name, rows in arrays}
        return {"kernel": copies[0].numpy()} | whole

    def slots(self):
        """`{"weight/velocity": array}` of the matrix and of the head."""
        found = {}
        for variable in self.optimizer.variables:
            name = variable.name.removeprefix("head_")
            of, _, slot = name.partition("_")
            if variable.shape and of in ("kernel", "weight", "bias"):
                found[f"{of}/{slot}"] = variable.numpy()
        for name, rows in self.updater.slots().items():
            found[name] = rows.read(0, rows.shape[0])
        return found

    def state(self):
        """`{name: number}` of the loss."""
        return {n: v.numpy() for n, v in self.head.state_variables.items()}


def join_samples(head, rows):
    """Numbers of the classes, from every replica's rows."""
    first = head.weight.split.first
    return np.concatenate([own + first(r) for r, own in enumerate(rows)])


def sampled_classes(head, strategy, labels, step):
    """The classes that the head samples for a global batch; None for all."""
    if head.sample_rate == 1:
        return None

    def replica():
        return head.sample(tf.constant(labels, tf.int64), tf.constant(step, tf.int64))

    chosen = tf.function(lambda: strategy.run(replica))()
    rows = strategy.experimental_local_results(chosen)
    return join_samples(head, [own.numpy() for own in rows])


def check(case, tolerance=1e-5, **options):
    """Runs a case and asserts that it agrees with the oracle after every step."""
    example = cases.make_example(case)
    stepper, expected = Stepper(case, example, **options), Expected(case, example)
    for batch in example.batches():
        found = stepper.step(*batch)
        wanted = expected.step(*batch, found.get("sampled"))
        close(found["losses"], wanted["losses"], tolerance)
        close(found["gradients"], wanted["gradients"], tolerance)
        if case.ranks:
            close(found["losses alone"], wanted["losses"], tolerance)
            for name in ("ranks", "ranks alone"):
                np.testing.assert_array_equal(found[name], wanted["ranks"])
    for name, value in stepper.weights().items():
        close(value, expected.weights[name], tolerance)
    slots, found = expected.whole_slots(), stepper.slots()
    assert sorted(found) == sorted(slots)
    for name, value in slots.items():
        close(found[name], value, tolerance)
    assert set(stepper.state()) == set(expected.state or {})
    for name, value in stepper.state().items():
        close(value, expected.state[name], tolerance)
    return stepper


def rotate(choices, number):
    """One of the choices, the next one for the next number."""
    return list(choices)[number % len(choices)]


def part_of_matrix(replicas, tiling):
    """Every loss and sampling, and heads that are whole on every replica."""
    count = itertools.count(replicas)
    for loss in LOSSES:
        for sampling in ["all"] if loss in SMOOTHED else cases.SAMPLINGS:
            for dense in [False, True] if sampling == "all" else [False]:
                if dense and tiling not in ("kept", "recomputed"):
                    continue
                number = next(count)
                centers = 1 if "softmax" in loss else rotate((1, 2, 3), number)
                yield Case(
                    *(loss, replicas, tiling, sampling),
                    optimizer=rotate(cases.OPTIMIZERS, number),
                    dense=dense,
                    ranks=number % 4 == 0,
                    sub_centers=centers,
                )


def main(replicas, tiling):
    """Runs a part of the matrix and prints what does not agree."""
    plsc_tf.strategy(replicas)  # makes the devices
    chosen = list(part_of_matrix(replicas, tiling))
    for case in chosen:
        try:
            check(case)
        except Exception:  # noqa: BLE001 - the others are run as well
            print(case, traceback.format_exc(), sep="\n")
    print(f"{len(chosen)} cases")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
