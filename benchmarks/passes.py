"""Measures a network's passes: plain, compiled by XLA, and in blocks.

Each measurement runs in a process of its own and prints one JSON object:

    python -m benchmarks.passes --network=iresnet50 --batch_size=32

`bytes_per_image` is the slope of the peak memory between a batch of one image and the
whole batch, so that it contains neither weights nor TensorFlow itself.
"""

import argparse
import json
import statistics
import sys
import time

from benchmarks import children, machine

WAYS = {
    "plain": {"jit_compile": False},
    "compiled": {"jit_compile": True},
    "blocks": {"jit_compile": False, "recompute": "blocks"},
    "both": {"jit_compile": True, "recompute": "blocks"},
}


def parse(arguments=None):
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="iresnet50")
    parser.add_argument("--image_size", type=int, default=112)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--one", action="store_true", help="measure in this process")
    return parser.parse_args(arguments)


def measure(given):
    """Returns seconds of the first step and of later ones, and the peak in bytes."""
    import numpy as np

    import plsc_tf

    size, count = given.image_size, given.batch_size
    with plsc_tf.strategy(1).scope():
        network = plsc_tf.backbones.build(given.network, image_shape=(size, size, 3))
        model = plsc_tf.Classifier(network, plsc_tf.ShardedHead(1000))
        model.compile(plsc_tf.Momentum(0.01), **WAYS[given.ways])
    images = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), np.uint8)
    times = []
    for _ in range(given.steps + 1):
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


def run(given, way, batch_size):
    """Returns the result of `measure` in a process of its own."""
    options = [f"--{name}={getattr(given, name)}" for name in ("network", "image_size")]
    options += [f"--batch_size={batch_size}", f"--steps={given.steps}", f"--ways={way}"]
    return children.last_line("-m", "benchmarks.passes", "--one", *options)


def main():
    """Prints a JSON object for each way."""
    given = parse()
    if given.one:
        sys.stdout.write(json.dumps(measure(given)) + "\n")
        return
    for way in given.ways.split(","):
        one, whole = run(given, way, 1), run(given, way, given.batch_size)
        rise = (whole["peak"] - one["peak"]) / (given.batch_size - 1)
        result = {
            "network": given.network,
            "batch_size": given.batch_size,
            "way": way,
            **whole,
            "bytes_per_image": round(rise),
        }
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
