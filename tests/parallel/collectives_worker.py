"""A worker of test_collectives.py; prints what its collectives gave, as JSON.

The first argument is the type of rounded gradients, "float16" or "bfloat16":

python -m tests.parallel.collectives_worker float16 127.0.0.1:5001,… 0   one of several
python -m tests.parallel.collectives_worker float16 2              a process of its own
"""

import json
import sys

import keras
import numpy as np
import tensorflow as tf

import plsc_tf
from benchmarks.sent import sent_bytes
from plsc_tf.parallel import collectives
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.collectives import Transport
from plsc_tf.parallel.group import SingleWorker
from plsc_tf.parallel.strategy import cluster_strategy
from plsc_tf.training import batching, several_steps
from plsc_tf.training.ending import Votes
from tests.networks import flat

DTYPES = ("float32", "float16", "bfloat16")
LABELS = (0, 1, 2**24 + 1, 2**31 - 1, 2**40 + 3, 2**62 + 5)
# Bits of a float32 that arithmetic would change: a quiet and a signalling NaN, the
# smallest number there is, and minus zero.
BITS = (0x7FC00001, 0x7F800001, 1, 0x80000000)
STEPS = 12
CLASSES, EMBEDDING, BATCH = 11, 16, 12


def drawn(replica, shape):
    return np.random.default_rng([7, replica]).standard_normal(shape).astype("f4")


def run(strategy, function):
    """A function that returns the first replica's results, and its collectives."""
    traced = tf.function(lambda: strategy.run(function), autograph=False)
    graph = traced.get_concrete_function().graph
    names = [o.type for o in graph.get_operations() if o.type.startswith("Collective")]

    def results():
        return tf.nest.map_structure(
            lambda one: strategy.experimental_local_results(one)[0], traced()
        )

    return results, names


def gather_and_scatter():
    """What a replica gathers, and its parts of sums."""
    replica, count = collectives.replica_id(), collectives.num_replicas()
    labels = tf.constant([LABELS[(replica + i) % len(LABELS)] for i in range(3)])
    bits = tf.bitcast(tf.constant(BITS, tf.uint32), tf.float32)
    values = [
        tf.constant(drawn(replica, (3, 5))),
        tf.cast(labels, tf.int64),
        tf.repeat(bits[replica % len(BITS)], 3),
        tf.constant(drawn(replica, (3, 2, 2)).astype("f8")),
    ]
    gathered = collectives.all_gather(values)
    gathered += [collectives.all_gather(value) for value in (values[0], values[3])]
    for whole, own in zip(gathered, [*values, values[0], values[3]], strict=True):
        assert whole.shape == (count * own.shape[0], *own.shape[1:])
        assert whole.dtype == own.dtype
    gathered[2] = tf.bitcast(gathered[2], tf.uint32)
    value = drawn(replica, (count * 2, 3))
    scattered = {
        dtype: collectives.reduce_scatter(tf.constant(value.astype(dtype)))
        for dtype in ("float32", "float64")
    }
    assert all(part.shape == (2, 3) for part in scattered.values())
    return {"gathered": gathered, "scattered": scattered}


def sums(strategy, wait_for_all, dtype, bucket_bytes=0):
    """Sums of 1,000,000 and two times 500,000 numbers, and the bytes they took."""
    transport = Transport(bucket_bytes, dtype)

    def replica_function():
        whole = drawn(collectives.replica_id(), [2_000_000])
        values = tf.split(tf.constant(whole), [1_000_000, 500_000, 500_000])
        return tf.concat(transport.all_sum(values), axis=0)

    function, names = run(strategy, replica_function)
    found = function()
    wait_for_all()
    before = sent_bytes()
    function()
    wait_for_all()
    expected = sum(drawn(r, [2_000_000]) for r in range(strategy.num_replicas_in_sync))
    return {
        "error": float(np.abs(found.numpy() - expected).max()),
        "type": found.dtype.name,
        "collectives": names,
        "sent": sent_bytes() - before,
    }


def make_model(strategy, transport=None, **options):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        hidden = keras.layers.Dense(32, activation="relu")
        backbone = flat((8, 8, 3), hidden, keras.layers.Dense(EMBEDDING))
        head = plsc_tf.ShardedHead(CLASSES, scale=16.0, seed=2, **options)
        model = plsc_tf.Classifier(backbone, head)
        if transport is None:  # A launched training votes; others do not.
            model.trainer.votes = Votes(SingleWorker())
        metrics = ["accuracy", "top5_accuracy"] if not options else []
        optimizer = plsc_tf.Momentum(0.02, global_clipnorm=1.0 if options else None)
        model.compile(optimizer, metrics=metrics, transport=transport)
    return model


def batch():
    generator = np.random.default_rng(3)
    images = generator.uniform(0, 255, (BATCH, 8, 8, 3)).astype("f4")
    return images, generator.integers(CLASSES, size=BATCH)


def curve(strategy, dtype):
    model = make_model(strategy, Transport(2_000, dtype))
    results = [model.train_on_batch(*batch()) for _ in range(STEPS)]
    return {name: [one[name] for one in results] for name in results[0]}


def step_collectives(strategy, **options):
    """`[operation, bytes of its input]` of every collective of a step."""
    model = make_model(strategy, **options)
    images, labels = batch()
    values = (images, labels.astype("i8"), np.ones(BATCH, "f4"))
    split = batching.split(strategy, [tf.constant(value) for value in values])
    arguments = [split], several_steps.always(strategy)
    graph = model.trainer.step_function.get_concrete_function(*arguments).graph
    return [
        [one.type, one.inputs[0].shape.num_elements() * one.inputs[0].dtype.size]
        for one in graph.get_operations()
        if one.type.startswith("Collective")
    ]


def main(rounded, where, index=None):
    if index is None:
        # As on several GPUs: collectives instead of copies.
        plsc_tf.strategy(int(where))
        devices = [f"CPU:{i}" for i in range(int(where))]
        strategy = tf.distribute.MirroredStrategy(devices)
    else:
        cluster = Cluster(tuple(where.split(",")), int(index), "the test")
        strategy = cluster_strategy(cluster)
    function, names = run(strategy, gather_and_scatter)
    found = tf.nest.map_structure(lambda value: value.numpy().tolist(), function())
    found["collectives"] = names
    if index is not None:
        # A sum of one number: no worker has it before all have what was sent so far.
        wait_for_all, _ = run(strategy, lambda: [collectives.all_sum(tf.ones([1]))])
        found["sums"] = {dtype: sums(strategy, wait_for_all, dtype) for dtype in DTYPES}
        found["sums"]["buckets"] = sums(strategy, wait_for_all, "float32", 2_000_000)
        found["step"] = step_collectives(strategy)
        options = {"sample_rate": 0.5, "loss": plsc_tf.ADAFACE}
        found["sampled step"] = step_collectives(strategy, **options)
    found["curves"] = {dtype: curve(strategy, dtype) for dtype in ("float32", rounded)}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
