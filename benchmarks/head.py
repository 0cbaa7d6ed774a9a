"""Seconds per step and memory of the sharded head, beside its three bare products.

The step is that of `plsc_tf.Classifier`, with embeddings that are given: forward,
backward, and the update. The last line printed is one JSON object; benchmarks/README.md
says what its figures mean.

    python -m benchmarks.head --num_classes=1000000 --global_batch=64 --num_replicas=2
    python -m benchmarks.head --num_classes=500000 --products=false --restored
    python -m benchmarks.head --num_classes=1000000 --peer=insightface \\
        --peer_python=torch/bin/python
"""

import json
import pathlib
import statistics
import sys

from benchmarks import machine, options, peer
from benchmarks.rounding import rounded

# Bytes of a number, by type.
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "float8": 1}


def main(case):
    """Measures one case and prints it."""
    if not pathlib.Path("/proc/driver/nvidia").exists():  # GPUs have their own memory
        check_memory(case)
    figures = {}
    if case.peer:
        # Before TensorFlow takes memory in this process.
        sys.stderr.write("arcface_torch:\n")
        figures["peer"] = peer.measure(case)
        sys.stderr.write("plsc_tf:\n")
    with machine.watch_others() as others:
        figures = {**measure(case), **figures}
    figures.update(others)
    if case.peer:
        theirs = figures["peer"]
        figures["times_as_fast_as_peer"] = theirs["step_s"] / figures["step_s"]
        figures["share_of_peers_memory"] = (
            figures["peak_rss_gb"] / theirs["peak_rss_gb"]
        )
    print(json.dumps(rounded(figures)))


def check_memory(case):
    """Raises ValueError when the machine cannot hold what is asked for."""
    needed, free = least_memory(case), machine.available_memory()
    if needed > free:
        without = (
            " --products=false needs less." if case.products and not case.peer else ""
        )
        raise ValueError(
            f"num_classes={case.num_classes} and emb_size={case.emb_size} need at "
            f"least {needed / machine.GB:.1f} GB of memory. Received: "
            f"{free / machine.GB:.1f} GB free.{without}"
        )


def least_memory(case):
    """Bytes that a case needs at the very least: weights, slots, products."""
    numbers = case.num_classes * case.emb_size
    models = 2 if case.restored else 1
    held = BYTES[case.weight_dtype] + case.slots * BYTES[case.slot_dtype]
    needed = 0.6 * machine.GB + models * held * numbers
    if case.products:
        # A second set of weights and its gradient.
        needed += 2 * case.sample_rate * 4 * numbers
    return needed


def measure(case):
    """Figures of one case, in a process that has done nothing else.

    Args:
        case: the `HeadCase`.

    Returns:
        dict, see benchmarks/README.md.
    """
    import tensorflow as tf

    import plsc_tf
    from benchmarks.products import Products
    from benchmarks.steps import Steps

    strategy = plsc_tf.strategy(case.num_replicas)
    described = machine.describe()
    gpus = tf.config.list_logical_devices("GPU")
    described["gpus"] = [
        tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    baseline = machine.peak_rss()
    steps = Steps(case, strategy)
    steps.run(case.warmup, timed=False)
    steps.run(case.steps, timed=True)
    peak = machine.peak_rss()
    device_peak = [
        tf.config.experimental.get_memory_info(gpu.name.replace("/device:", ""))["peak"]
        for gpu in gpus
    ]
    products = Products(case, strategy) if case.products else None
    if products:
        products.run(case.steps)
    for _ in range(case.rounds - 1):
        steps.run(case.steps, timed=True)
        if products:
            products.run(case.steps)
    memory = sum(device_peak) or peak - baseline
    return {
        **_times(steps, products),
        **(restored_times(case, strategy, steps) if case.restored else {}),
        "peak_rss_gb": peak / machine.GB,
        "baseline_rss_gb": baseline / machine.GB,
        "bytes_per_class": memory / case.num_classes,
        **({"peak_device_gb": [p / machine.GB for p in device_peak]} if gpus else {}),
        "loss_first": steps.losses[0],
        "loss_last": steps.losses[-1],
        "parameters": {name: getattr(case, name) for name in case.__dataclass_fields__},
        "machine": described,
        "versions": {
            "plsc_tf": plsc_tf.__version__,
            "tensorflow": tf.__version__,
            "keras": tf.keras.__version__,
            "python": sys.version.split()[0],
        },
    }


def restored_times(case, strategy, steps):
    """Seconds of steps after a restore, by turns with those of `steps`."""
    from benchmarks.steps import Steps

    restored = Steps(case, strategy)
    restored.run(case.warmup, timed=False)
    restored.restore()
    first = len(steps.seconds)
    for i in range(2 * case.steps * case.rounds):
        # Neither is always the one that finds the other's data in the cache.
        for each in (steps, restored) if i % 2 else (restored, steps):
            each.run(1, timed=i > 0)
    plain = statistics.median(steps.seconds[first:])
    after = statistics.median(restored.seconds)
    return {
        "unrestored_step_s": plain,
        "restored_step_s": after,
        "restored_ratio": after / plain,
    }


def _times(steps, products):
    """Medians and the fastest, of steps and products, and their ratios."""
    times = {
        "step_s": statistics.median(steps.seconds),
        "step_min_s": min(steps.seconds),
        "step_cpu_s": statistics.median(steps.cpu_seconds),
        "steps_s": steps.seconds,
    }
    if products is None:
        return times
    medians = {k: statistics.median(v) for k, v in products.seconds.items()}
    fastest = {k: min(v) for k, v in products.seconds.items()}
    times["products_s"] = medians["batch_by_classes"]
    times["products_best_s"] = min(medians.values())
    times["products_min_s"] = fastest["batch_by_classes"]
    times["ratio"] = times["step_s"] / times["products_s"]
    times["ratio_best"] = times["step_s"] / times["products_best_s"]
    times["ratio_min"] = times["step_min_s"] / times["products_min_s"]
    times["products_rows"] = products.rows
    return times


if __name__ == "__main__":
    options.run(main, options.HeadCase, __doc__)
