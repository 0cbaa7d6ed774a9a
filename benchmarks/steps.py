"""The real training step of `plsc_tf.Classifier` on embeddings that are given."""

import sys

import keras
import numpy as np
import tensorflow as tf

import plsc_tf
from plsc_tf.training import batching

MARGINS = {
    "arcface": plsc_tf.ARCFACE,
    "cosface": plsc_tf.COSFACE,
    "softmax": plsc_tf.SOFTMAX,
}
# Steps take the batches by turns, so that the loss can be seen falling.
NUM_BATCHES = 2


def make_model(case, strategy):
    """A compiled `Classifier` whose backbone is the identity, and trainable.

    Its only weights are one factor per element of the embedding, all 1 at first: a
    backbone that asks for no gradient would let TensorFlow leave out one of the
    head's three products.

    Args:
        case: the `StepsCase`.
        strategy: the `tf.distribute.Strategy` of its replicas.
    """
    given = {
        "tile_rows": case.tile_rows,
        "logits_mb": case.logits_mb,
        "dtype": case.head_dtype or None,
        "initializer": case.initializer or None,
    }
    with strategy.scope():
        head = plsc_tf.ShardedHead(
            num_classes=case.num_classes,
            loss=MARGINS[case.margins],
            sample_rate=case.sample_rate,
            seed=case.seed,
            weight_dtype=case.weight_dtype,
            **{name: value for name, value in given.items() if value is not None},
        )
        backbone = keras.Sequential(
            [
                keras.Input((1, case.emb_size, 1)),
                keras.layers.Flatten(),
                keras.layers.EinsumDense(
                    "be,e->be", case.emb_size, kernel_initializer="ones"
                ),
            ]
        )
        model = plsc_tf.Classifier(backbone, head)
        model.compile(make_optimizer(case), head_slot_dtype=case.slot_dtype)
    return model


def make_optimizer(case):
    """The Keras optimizer of a case; PLSC's and arcface_torch's L2 decay of 5e-4."""
    if case.optimizer == "adam":
        return keras.optimizers.Adam(case.rate)
    if case.optimizer == "adamw":
        return keras.optimizers.AdamW(case.rate, weight_decay=0.004)
    momentum = 0.9 if case.optimizer == "momentum" else 0.0
    return plsc_tf.Momentum(case.rate, momentum=momentum, l2=5e-4)


def make_batches(case, strategy):
    """Per-replica (images, labels, weights), of which the model makes N(0, 1)."""
    # Not the seed of the weights: their first rows would be these embeddings.
    generator = np.random.default_rng([case.seed, 0, 1])
    batches = []
    for _ in range(NUM_BATCHES):
        size = (case.global_batch, 1, case.emb_size, 1)
        embeddings = generator.standard_normal(size, np.float32)
        images = tf.constant(embeddings * 128.0 + 127.5)
        labels = generator.integers(case.num_classes, size=case.global_batch)
        weights = np.ones(case.global_batch, np.float32)
        batch = (images, tf.constant(labels, tf.int64), tf.constant(weights))
        batches.append(batching.split(strategy, batch))
    return batches


class Steps:
    """A model that takes steps, which a stopwatch times.

    Args:
        case: the `StepsCase`.
        strategy: the `tf.distribute.Strategy` of its replicas.
        watch: the `Stopwatch`.

    Attributes:
        model: the `Classifier`.
        losses: the loss of each step.
    """

    def __init__(self, case, strategy, watch):
        self.losses = []
        self.model = make_model(case, strategy)
        self._watch = watch
        self._batches = make_batches(case, strategy)

    def run(self, count, name="step"):
        """Runs `count` steps, timed under a name, and reports on the standard error."""
        for i in range(count):
            batch = self._batches[len(self.losses) % NUM_BATCHES]
            with self._watch.time(name):
                loss = self.model.trainer.run_step(batch)["loss"]
            self.losses.append(loss)
            taken = self._watch.seconds[name][-1]
            sys.stderr.write(
                f"{name} {i + 1} of {count}: {taken:.3f} s, loss {loss:.4f}\n"
            )

    def restore(self):
        """Overwrites weights and slots with themselves in pieces, half a tile each."""
        head, updater = self.model.head, self.model.trainer.updater
        for rows in (*head.arrays().values(), *updater.slots().values()):
            most = -(-rows.tile_rows // 2)
            for low, high in rows.spans(*rows.local_range(), most):
                rows.write(low, rows.read(low, high))
