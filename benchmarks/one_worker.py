"""One worker of `benchmarks.workers`: a forked process that does what it is told."""

import os
import statistics
import time

# Collectives that a function of the network's measurement chains, small and large.
SMALL_CHAIN, LARGE_CHAIN = 8, 2
LARGE_NUMBERS = 1_000_000


def main(pipe, addresses, index, core):
    """Answers commands until the pipe is closed.

    Args:
        pipe: of commands `(name, arguments)`, which gets their results.
        addresses: of the cluster's workers.
        index: which one this is.
        core: the only core it may use.
    """
    os.sched_setaffinity(0, {core})
    os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
    worker = _Worker(addresses, index)
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(getattr(worker, name)(*arguments))


class _Worker:
    """What the commands do; TensorFlow starts with the first one."""

    def __init__(self, addresses, index):
        self.addresses, self.index = addresses, index
        self.strategy = None
        self.functions = {}

    def start(self):
        """Joins the others of the cluster."""
        from plsc_tf.parallel import strategy
        from plsc_tf.parallel.cluster import Cluster

        if len(self.addresses) == 1:
            self.strategy = strategy.strategy(1)
            return
        cluster = Cluster(tuple(self.addresses), self.index, "the benchmark")
        self.strategy = strategy.cluster_strategy(cluster)

    def prepare(self, name, case, images, classes):
        """Makes the training of a case; returns the backbone's number of weights."""
        model, batch = _training(case, self.strategy, images, classes)
        self.functions[name] = lambda: model.trainer.run_step(batch)
        self.functions[name]()
        return model.backbone.count_params()

    def prepare_network(self):
        """Makes functions of nothing but collectives."""
        import tensorflow as tf

        from plsc_tf.parallel import collectives

        count = len(self.addresses)
        kinds = {
            "all_sum": collectives.all_sum,
            "all_gather": lambda x: collectives.all_gather(x)[: x.shape[0]],
            "reduce_scatter": lambda x: tf.tile(
                collectives.reduce_scatter(x), [count, 1]
            ),
        }

        def make(kind, numbers, chain):
            def replica_function():
                value = tf.ones([12, numbers // 12])
                for _ in range(chain):
                    value = 0.5 * kinds[kind](value)
                return tf.reduce_sum(value)

            traced = tf.function(
                lambda: self.strategy.run(replica_function), autograph=False
            )
            traced()
            return lambda: float(
                self.strategy.experimental_local_results(traced())[0].numpy()
            )

        for kind in kinds:
            self.functions[f"small {kind}"] = make(kind, 12, SMALL_CHAIN)
        self.functions["large"] = make("all_sum", LARGE_NUMBERS, LARGE_CHAIN)

    def run(self, name, times):
        """Median seconds of a function."""
        function, seconds = self.functions[name], []
        for _ in range(times):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)


def _training(case, strategy, images, classes):
    """A compiled `Classifier` and per-replica batches for it."""
    import keras
    import numpy as np
    import tensorflow as tf

    import plsc_tf
    from plsc_tf.training import batching

    keras.utils.set_random_seed(1)
    with strategy.scope():
        backbone = _network(case)
        head = plsc_tf.ShardedHead(classes, seed=2)
        model = plsc_tf.Classifier(backbone, head)
        model.compile(plsc_tf.Momentum(1e-4))
    count = images * strategy.num_replicas_in_sync
    generator = np.random.default_rng(3)
    side = case.image_size
    pictures = generator.integers(0, 256, (count, side, side, 3)).astype("float32")
    labels = generator.integers(classes, size=count)
    batch = [
        tf.constant(pictures),
        tf.constant(labels, tf.int64),
        tf.ones([count], tf.float32),
    ]
    return model, batching.split(strategy, batch)


def _network(case):
    import keras

    layers, side = keras.layers, case.image_size
    return keras.Sequential(
        [
            keras.Input((side, side, 3)),
            layers.Conv2D(32, 3, strides=2, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, strides=2, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dense(case.hidden, activation="relu"),
            layers.Dense(case.emb_size),
        ]
    )
