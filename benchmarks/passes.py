"""Measures a network's passes: plain, compiled by XLA, and in blocks.

Each measurement runs in a process of its own and prints one JSON object:

    python -m benchmarks.passes --network=iresnet50 --batch_size=32

`bytes_per_image` is the slope of the peak memory between a batch of one image and the
whole batch, so that it contains neither weights nor TensorFlow itself.
"""

import dataclasses
import json
import statistics
import time

from benchmarks import children, machine, options
from plsc_tf.flags.option import OptionGroup, option

WAYS = {
    "plain": {"jit_compile": False},
    "compiled": {"jit_compile": True},
    "blocks": {"jit_compile": False, "recompute": "blocks"},
    "both": {"jit_compile": True, "recompute": "blocks"},
}


class PassesCase(OptionGroup):
    """What is measured."""

    network: str = option("iresnet50", "name of the network")
    image_size: int = option(112, "height and width of the images", lower=1)
    batch_size: int = option(32, "images of a step", lower=1)
    steps: int = option(3, "timed steps", lower=1)
    ways: tuple[str, ...] = option(tuple(WAYS), "ways", choices=" ".join(WAYS))
    one: bool = option(False, "measure the first way in this process")


def measure(case):
    """Returns seconds of the first step and of later ones, and the peak in bytes."""
    import numpy as np

    import plsc_tf

    size, count = case.image_size, case.batch_size
    with plsc_tf.strategy(1).scope():
        network = plsc_tf.backbones.build(case.network, image_shape=(size, size, 3))
        model = plsc_tf.Classifier(network, plsc_tf.ShardedHead(1000))
        model.compile(plsc_tf.Momentum(0.01), **WAYS[case.ways[0]])
    images = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)
    times = []
    for _ in range(case.steps + 1):
        start = time.perf_counter()
        loss = model.train_on_batch(images, np.arange(count))["loss"]
        times.append(time.perf_counter() - start)
    return {
        "loss": loss,
        "first_s": times[0],
        "step_s": statistics.median(times[1:]),
        "cpu_s": time.process_time(),
        "peak": machine.peak_rss(),
    }


def run(case, way, batch_size):
    """Returns the result of `measure` in a process of its own."""
    case = dataclasses.replace(case, ways=(way,), batch_size=batch_size, one=True)
    return children.last_line("-m", "benchmarks.passes", *options.arguments(case))


def main(case):
    """Prints a JSON object for each way."""
    if case.one:
        print(json.dumps(measure(case)))
        return
    for way in case.ways:
        one, whole = run(case, way, 1), run(case, way, case.batch_size)
        result = {
            "network": case.network,
            "batch_size": case.batch_size,
            "way": way,
            **whole,
            "bytes_per_image": round(
                (whole["peak"] - one["peak"]) / (case.batch_size - 1)
            ),
        }
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    options.run(main, PassesCase, __doc__)
