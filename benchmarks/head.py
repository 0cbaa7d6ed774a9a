"""Seconds per step and memory of the sharded head, beside its three bare products.

The step is that of `plsc_tf.Classifier`, with embeddings that are given: forward,
backward, and the update. The last line printed is one JSON object; benchmarks/README.md
says what its figures mean.

    python -m benchmarks.head --num_classes=1000000 --global_batch=64 --num_replicas=2
    python -m benchmarks.head --num_classes=500000 --products=false --restored
    python -m benchmarks.head --num_classes=1000000 --peer=insightface \\
        --peer_python=torch/bin/python
"""

import pathlib
import sys

from benchmarks import machine, options, peer


def main(case):
    """Measures one case and prints it."""
    if not pathlib.Path("/proc/driver/nvidia").exists():  # GPUs have their own memory
        asked = f"num_classes={case.num_classes} and emb_size={case.emb_size}"
        if case.products and not case.peer:
            asked += " (less with --products=false)"
        machine.check_memory(least_memory(case), asked)
    theirs = None
    if case.peer:
        # Before TensorFlow takes memory in this process.
        sys.stderr.write("arcface_torch:\n")
        theirs = peer.measure(case)
        sys.stderr.write("plsc_tf:\n")
    with machine.report(case) as figures:
        figures |= measure(case)
        if theirs:
            figures["peer"] = theirs
            figures["times_as_fast_as_peer"] = theirs["step_s"] / figures["step_s"]
            figures["share_of_peers_memory"] = (
                figures["peak_rss_gb"] / theirs["peak_rss_gb"]
            )


def least_memory(case):
    """Bytes that a case needs at the very least: weights, slots, products."""
    needed = 0.6 * machine.GB + (2 if case.restored else 1) * case.held_bytes
    if case.products:
        # A second set of weights and its gradient.
        needed += 2 * case.sample_rate * 4 * case.num_classes * case.emb_size
    return needed


def measure(case):
    """Figures of one case, in a process that has done nothing else.

    Args:
        case: the `HeadCase`.

    Returns:
        dict, see benchmarks/README.md.
    """
    import keras
    import tensorflow as tf

    import plsc_tf
    from benchmarks.products import Products
    from benchmarks.steps import Steps

    strategy = plsc_tf.strategy(case.num_replicas)
    gpus = tf.config.list_logical_devices("GPU")
    baseline, watch = machine.peak_rss(), machine.Stopwatch()
    steps = Steps(case, strategy, watch)
    steps.run(case.warmup, "warm-up step")
    steps.run(case.steps)
    peak = machine.peak_rss()
    device_peak = [
        tf.config.experimental.get_memory_info(gpu.name.replace("/device:", ""))["peak"]
        for gpu in gpus
    ]
    products = Products(case, strategy, watch) if case.products else None
    if products:
        products.run(case.steps)
    for _ in range(case.rounds - 1):
        steps.run(case.steps)
        if products:
            products.run(case.steps)
    if case.restored:
        _run_restored(steps, Steps(case, strategy, watch), case)
    memory = sum(device_peak) or peak - baseline
    return {
        **_times(watch),
        **({"products_rows": products.rows} if products else {}),
        "peak_rss_gb": peak / machine.GB,
        "baseline_rss_gb": baseline / machine.GB,
        "bytes_per_class": memory / case.num_classes,
        **({"peak_device_gb": [p / machine.GB for p in device_peak]} if gpus else {}),
        "loss_first": steps.losses[0],
        "loss_last": steps.losses[-1],
        "gpus": [
            tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
            for gpu in tf.config.list_physical_devices("GPU")
        ],
        "versions": {one.__name__: one.__version__ for one in (plsc_tf, tf, keras)},
    }


def _run_restored(steps, restored, case):
    """Times steps after a restore, by turns with those of a model without one."""
    restored.run(case.warmup, "warm-up step")
    restored.restore()
    both = [(steps, "unrestored_step"), (restored, "restored_step")]
    for i in range(2 * case.steps * case.rounds):
        # Neither is always the one that finds the other's data in the cache.
        for each, name in both if i % 2 else reversed(both):
            each.run(1, name if i else "warm-up step")


def _times(watch):
    """Medians and the fastest, of steps and products, and their ratios."""
    medians, of_cpu = watch.medians()
    times = {
        "step_s": medians["step"],
        "step_min_s": min(watch.seconds["step"]),
        "step_cpu_s": of_cpu["step"],
        "steps_s": watch.seconds["step"],
    }
    if "restored_step" in medians:
        times["restored_step_s"] = medians["restored_step"]
        times["unrestored_step_s"] = medians["unrestored_step"]
        times["restored_ratio"] = times["restored_step_s"] / times["unrestored_step_s"]
    if "batch_by_classes" in medians:
        times["products_s"] = medians["batch_by_classes"]
        times["products_best_s"] = min(times["products_s"], medians["classes_by_batch"])
        times["products_min_s"] = min(watch.seconds["batch_by_classes"])
        times["ratio"] = times["step_s"] / times["products_s"]
        times["ratio_best"] = times["step_s"] / times["products_best_s"]
        times["ratio_min"] = times["step_min_s"] / times["products_min_s"]
    return times


if __name__ == "__main__":
    options.run(main, options.HeadCase, __doc__)
