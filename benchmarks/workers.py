"""Seconds per step over the number of workers on this machine.

`plsc_tf.launch` trains a small network with each number of workers by turns. A worker
computes with one thread and has its own share of images, so the global batch grows with
the workers. The last line printed is one JSON object; benchmarks/README.md says what
its figures mean.

    python -m benchmarks.workers
    python -m benchmarks.workers --workers=1,2 --num_classes=100000 --rounds=3
"""

import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys

from benchmarks import machine, options
from plsc_tf.flags.option import OptionGroup, option

TRAINING = (
    *("--dataset_name=mock", "--datasets_use_caching", "--preprocessing_name=face"),
    *("--emb_size=128", "--nowith_test", "--val_targets=", "--notensorboard"),
    *("--noexport_at_end", "--norun_report", "--save_checkpoints_epochs=0"),
    *("--learning_rate=1e-4", "--lr_base_batch_size=0"),
)


class WorkersCase(OptionGroup):
    """What is trained, and how often."""

    workers: tuple[int, ...] = option((1, 2, 3, 4), "sizes of the clusters", lower=1)
    images: int = option(24, "images per step of each worker", lower=1)
    image_size: int = option(32, "height and width in pixels", lower=16)
    model_name: str = option("lenet", "the network")
    num_classes: int = option(20_000, "classes of the head", lower=1)
    steps: int = option(50, "steps per round", lower=2)
    rounds: int = option(3, "alternating rounds of measurements", lower=1)


def main(case):
    """Measures and prints."""
    seconds = collections.defaultdict(list)
    with machine.scratch("workers") as folder, machine.report(case) as figures:
        for turn in range(case.rounds):
            for size in case.workers:
                run_dir = pathlib.Path(folder, f"{size}-{turn}")
                seconds[size].append(step_s(case, size, run_dir))
                sys.stderr.write(f"{size} workers: {seconds[size][-1]:.4f} s a step\n")
        figures["steps"] = [
            {
                "workers": size,
                "median_s": statistics.median(rounds),
                "fastest_s": min(rounds),
                "images_per_second": size * case.images / min(rounds),
                "rounds_s": rounds,
            }
            for size, rounds in seconds.items()
        ]


def step_s(case, size, run_dir):
    """Mean seconds per step of a training with `size` workers, without the first."""
    command = [sys.executable, "-m", "plsc_tf.launch", f"--num_workers={size}"]
    command += ["--", *TRAINING, f"--model_name={case.model_name}"]
    command += [f"--image_shape=3,{case.image_size},{case.image_size}"]
    command += [f"--num_classes={case.num_classes}", f"--model_save_dir={run_dir}"]
    command += [f"--global_batch_size={size * case.images}", "--num_replicas=0"]
    command += [f"--num_sample_per_epoch={size * case.images * case.steps}"]
    command += ["--num_epochs=1"]
    environ = {**os.environ, "TF_NUM_INTRAOP_THREADS": "1"}
    subprocess.run(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ).check_returncode()
    results = json.loads((run_dir / "results.json").read_text(encoding="utf-8"))
    return results["seconds_per_step"]


if __name__ == "__main__":
    options.run(main, WorkersCase, __doc__)
