"""The three matrix products that any head must do, alone: the measure of its step."""

import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import RowSplit

LAYOUTS = ("batch_by_classes", "classes_by_batch")


class Products:
    """x Wᵀ, dlogitsᵀ x and dlogits W of each replica's classes, all replicas at once.

    The logits stand for their own gradient. Weights of the head's shape are made
    here: those of the head may be tiles, and are not to be held by a second reader.

    Args:
        case: the `HeadCase`.
        strategy: the `tf.distribute.Strategy` of its replicas.
        watch: the `Stopwatch` that times them, by layout.

    Attributes:
        rows: classes per replica that take part; fewer than its own under Partial
            FC.
    """

    def __init__(self, case, strategy, watch):
        count = strategy.num_replicas_in_sync
        split = RowSplit(case.num_classes, count)
        self.rows = [
            max(1, int(case.sample_rate * split.size(shard))) for shard in range(count)
        ]
        self._strategy = strategy
        self._watch = watch
        dtype = tf.as_dtype(case.head_dtype or "float32")
        devices = strategy.extended.worker_devices
        self._weights = [
            _normal(device, (rows, case.emb_size), case.seed + shard, dtype)
            for shard, (device, rows) in enumerate(zip(devices, self.rows, strict=True))
        ]
        self._inputs = [
            _normal(device, (case.global_batch, case.emb_size), case.seed, dtype)
            for device in devices
        ]
        self._functions = {
            "batch_by_classes": tf.function(lambda: strategy.run(self._batch_first)),
            "classes_by_batch": tf.function(lambda: strategy.run(self._classes_first)),
        }

    def run(self, count):
        """Times every layout `count` times, after one call that is not timed."""
        for layout in LAYOUTS:
            self._call(layout)
            for _ in range(count):
                with self._watch.time(layout):
                    self._call(layout)

    def _call(self, layout):
        outcome = self._functions[layout]()
        for value in self._strategy.experimental_local_results(outcome):
            value.numpy()

    def _batch_first(self):
        weight, x = self._own()
        logits = tf.matmul(x, weight, transpose_b=True)
        weight_gradient = tf.matmul(logits, x, transpose_a=True)
        return _touch(weight_gradient, tf.matmul(logits, weight))

    def _classes_first(self):
        weight, x = self._own()
        logits = tf.matmul(weight, x, transpose_b=True)
        weight_gradient = tf.matmul(logits, x)
        return _touch(weight_gradient, tf.matmul(logits, weight, transpose_a=True))

    def _own(self):
        replica = collectives.replica_id()
        return self._weights[replica].read_value(), self._inputs[replica].read_value()


def _normal(device, shape, seed, dtype):
    with tf.device(device):
        values = tf.random.stateless_normal(shape, [seed, 0], dtype=tf.float32)
        return tf.Variable(tf.cast(values, dtype), trainable=False)


def _touch(*results):
    """A number that needs every result, so that none is optimised away."""
    return tf.add_n([tf.cast(result[0, 0], tf.float32) for result in results])
