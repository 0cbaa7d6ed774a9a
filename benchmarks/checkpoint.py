"""Saving and restoring a large head, beside `cp` and `sync` of the same bytes.

The last line printed is one JSON object; benchmarks/README.md says what its figures
mean.

    python -m benchmarks.checkpoint
    python -m benchmarks.checkpoint --megabytes=200 --folder=/mnt/disk
"""

import dataclasses
import statistics
import sys

from benchmarks import machine, options
from plsc_tf.flags.option import OptionGroup, option


class CheckpointCase(OptionGroup):
    """How much is saved, and where."""

    megabytes: int = option(2000, "weights and slots of the head, in 10^6", lower=1)
    emb_size: int = option(512, "length of the embeddings", lower=1)
    global_batch: int = option(64, "examples per step over all replicas", lower=1)
    num_replicas: int = option(2, "replicas", lower=1)
    sample_rate: float = option(
        1.0,
        "fraction of the classes in a step (Partial FC)",
        within="(0, 1]",
    )
    optimizer: str = option(
        "momentum",
        "update rule, with 1, 0, 2 or 2 slots per weight",
        choices="momentum sgd adam adamw",
    )
    steps: int = option(5, "steps that are timed without saving, per round", lower=1)
    rounds: int = option(3, "alternating rounds of measurements", lower=1)
    folder: str = option(
        "", "folder on the disk to measure; empty: the temporary folder"
    )
    seed: int = option(0, "random seed of weights, embeddings and labels")

    def head(self):
        """The same as a `HeadCase`, whose model and batches are used."""
        shared = {
            name: getattr(self, name)
            for name in ("emb_size", "global_batch", "num_replicas", "sample_rate")
        }
        case = options.HeadCase(**shared, optimizer=self.optimizer, seed=self.seed)
        row_bytes = 4 * self.emb_size * (1 + case.slots)
        classes = max(self.num_replicas, round(self.megabytes * 1e6 / row_bytes))
        return dataclasses.replace(case, num_classes=classes)


def main(case):
    """Measures one case and prints it."""
    check_room(case)
    asked = f"megabytes={case.megabytes}"
    with (
        machine.scratch("checkpoint", case.folder, 3e6 * case.megabytes, asked) as at,
        machine.report(case) as figures,
    ):
        figures |= measure(case, at)


def check_room(case):
    """Raises ValueError when memory cannot hold what is asked for."""
    # Weights and slots, those that a save in the background holds, and TensorFlow.
    memory, free = 2e6 * case.megabytes + 1e9, machine.available_memory()
    if memory > free:
        raise ValueError(
            f"megabytes={case.megabytes} needs {memory / 1e9:.1f} GB of memory. "
            f"Received: {free / 1e9:.1f} GB free."
        )


def measure(case, folder):
    """Figures of one case; see benchmarks/README.md.

    Args:
        case: the `CheckpointCase`.
        folder: an empty folder to write in.
    """
    from benchmarks.checkpoint_rounds import Rounds

    rounds = Rounds(case, folder)
    for i in range(case.rounds):
        rounds.run()
        taken = ", ".join(f"{k} {v[-1]:.2f}" for k, v in rounds.seconds.items())
        sys.stderr.write(f"round {i + 1} of {case.rounds}: {taken}\n")
    return summary(rounds)


def summary(rounds):
    """The ratios, from the medians of all rounds.

    Args:
        rounds: has `seconds`, `cpu_seconds`, `extra_bytes` and `saved_bytes`.
    """
    seconds = {name: statistics.median(all_) for name, all_ in rounds.seconds.items()}
    extra = {name: max(grown) / 1e6 for name, grown in rounds.extra_bytes.items()}
    ratios = {
        "wait_ratio": seconds["waited"] / seconds["save_background"],
        "save_vs_cp": seconds["cp"] / seconds["save_low_memory"],
        "save_background_vs_cp": seconds["cp_while_training"]
        / seconds["save_background"],
        "restore_vs_cp": seconds["cp_cold"] / seconds["restore_cold"],
        "restore_cached_vs_cp": seconds["cp"] / seconds["restore"],
        "speed_while_saving": seconds["step"] / seconds["step_while_saving"],
        "speed_while_copying": seconds["step"] / seconds["step_while_copying"],
        "extra_memory_mb": max(
            extra[name] for name in ("save_low_memory", "restore_cold", "restore")
        ),
    }
    cpu = {name: statistics.median(all_) for name, all_ in rounds.cpu_seconds.items()}
    return {
        **ratios,
        "saved_mb": rounds.saved_bytes / 1e6,
        "extra_mb": extra,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "rounds_s": dict(rounds.seconds),
    }


if __name__ == "__main__":
    options.run(main, CheckpointCase, __doc__)
