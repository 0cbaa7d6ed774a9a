"""Seconds per step over the number of workers on this machine.

Worker i of each cluster has core i (modulo the cores) for itself, and its own share of
images, so the global batch grows with the workers. The last line printed is one JSON
object; benchmarks/README.md says what its figures mean.

    python -m benchmarks.workers
    python -m benchmarks.workers --workers=1,2 --num_classes=100000 --rounds=3
"""

import contextlib
import multiprocessing
import os
import statistics
import sys
import time

from benchmarks import machine, options, processes
from plsc_tf.flags.option import OptionGroup, option
from plsc_tf.parallel.addresses import free_addresses


class WorkersCase(OptionGroup):
    """What is trained, and how often."""

    workers: tuple[int, ...] = option((1, 2, 3, 4), "sizes of the clusters", lower=1)
    images: int = option(24, "images per step of each worker", lower=1)
    image_size: int = option(32, "height and width in pixels; a multiple of 4", lower=4)
    hidden: int = option(256, "width of the network's second-to-last layer", lower=1)
    emb_size: int = option(128, "length of the embeddings", lower=1)
    num_classes: int = option(20_000, "classes of the head", lower=1)
    steps: int = option(5, "timed steps per round", lower=1)
    rounds: int = option(8, "alternating rounds of measurements", lower=1)


def main(case):
    """Measures and prints."""
    processes.load()
    with machine.report(case) as figures, contextlib.ExitStack() as stack:
        clusters = {}
        for size in sorted(set(case.workers)):
            sys.stderr.write(f"starting {size}\n")
            clusters[size] = _Cluster(size, case, stack)
        seconds = {size: [] for size in clusters}
        for turn in range(case.rounds):
            sys.stderr.write(f"round {turn + 1} of {case.rounds}\n")
            for size, cluster in clusters.items():
                seconds[size].append(cluster.step_s())
        figures["steps"] = [
            {
                "workers": size,
                "median_s": statistics.median(all_),
                "fastest_s": min(all_),
                "images_per_second": size * case.images / min(all_),
                "rounds_s": all_,
            }
            for size, all_ in seconds.items()
        ]


class _Cluster:
    """Forked workers that run steps at the same time."""

    def __init__(self, size, case, stack):
        fork = multiprocessing.get_context("fork")
        addresses = free_addresses(size)
        cores = sorted(os.sched_getaffinity(0))
        self._pipes = []
        for index in range(size):
            ours, theirs = fork.Pipe()
            core = cores[index % len(cores)]
            worker = fork.Process(
                target=_work, args=(theirs, case, addresses, index, core), daemon=True
            )
            worker.start()
            theirs.close()
            stack.callback(worker.join)
            stack.callback(worker.kill)
            self._pipes.append(ours)
        for pipe in self._pipes:
            pipe.recv()

    def step_s(self):
        """The first worker's median seconds per step, when all have ended theirs."""
        for pipe in self._pipes:
            pipe.send(None)
        return [pipe.recv() for pipe in self._pipes][0]


def _work(pipe, case, addresses, index, core):
    """Joins the other workers, and answers each message with the seconds of a step."""
    os.sched_setaffinity(0, {core})
    os.environ["TF_NUM_INTRAOP_THREADS"] = "1"
    from plsc_tf.parallel import strategy
    from plsc_tf.parallel.cluster import Cluster

    if len(addresses) == 1:
        replicas = strategy.strategy(1)
    else:
        cluster = Cluster(addresses, index, "the benchmark")
        replicas = strategy.cluster_strategy(cluster)
    model, batch = _training(case, replicas)
    model.trainer.run_step(batch)
    pipe.send(None)
    while True:
        pipe.recv()
        seconds = []
        for _ in range(case.steps):
            start = time.perf_counter()
            model.trainer.run_step(batch)
            seconds.append(time.perf_counter() - start)
        pipe.send(statistics.median(seconds))


def _training(case, strategy):
    """A compiled `Classifier` and per-replica batches for it."""
    import keras
    import numpy as np
    import tensorflow as tf

    import plsc_tf
    from plsc_tf.training import batching

    keras.utils.set_random_seed(1)
    with strategy.scope():
        backbone = _network(case)
        head = plsc_tf.ShardedHead(case.num_classes, seed=2)
        model = plsc_tf.Classifier(backbone, head)
        model.compile(plsc_tf.Momentum(1e-4))
    count = case.images * strategy.num_replicas_in_sync
    generator = np.random.default_rng(3)
    side = case.image_size
    pictures = generator.integers(0, 256, (count, side, side, 3)).astype("float32")
    labels = generator.integers(case.num_classes, size=count)
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


if __name__ == "__main__":
    options.run(main, WorkersCase, __doc__)
