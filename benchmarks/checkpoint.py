"""Saving and restoring a large head, beside `cp` and `sync` of the same bytes.

The last line printed is one JSON object; benchmarks/README.md says what its figures
mean.

    python -m benchmarks.checkpoint
    python -m benchmarks.checkpoint --num_classes=50000 --folder=/mnt/disk
"""

import collections
import contextlib
import functools
import os
import pathlib
import shutil
import subprocess
import sys

from benchmarks import machine, options
from plsc_tf.flags.option import option


class CheckpointCase(options.StepsCase):
    """A head, and where it is saved."""

    num_classes: int = option(
        488_281, "number of classes; with the other options' defaults: 2 GB", lower=1
    )
    rounds: int = option(3, "alternating rounds of measurements", lower=1)
    folder: str = option(
        "", "folder on the disk to measure; empty: the temporary folder"
    )


def main(case):
    """Measures one case and prints it."""
    held, asked = case.held_bytes, f"num_classes={case.num_classes}"
    # Weights and slots, those that a save in the background holds, and TensorFlow.
    machine.check_memory(2 * held + 1e9, f"{asked} and the other options")
    with (
        machine.scratch("checkpoint", case.folder, 3 * held, asked) as folder,
        machine.report(case) as figures,
    ):
        rounds = Rounds(case, pathlib.Path(folder))
        for i in range(case.rounds):
            sys.stderr.write(f"round {i + 1} of {case.rounds}\n")
            rounds.run()
        figures |= rounds.figures()


class Rounds:
    """A model, and the seconds of what is done with its checkpoints.

    Args:
        case: the `CheckpointCase`.
        folder: an empty folder to write in.
    """

    def __init__(self, case, folder):
        import plsc_tf
        from benchmarks.steps import Steps

        self._case = case
        self._watch = machine.Stopwatch()
        # {what: [growth of the resident memory in each round]}
        self._extra_bytes = collections.defaultdict(list)
        self._saved, self._copied = folder / "saved", folder / "copied"
        self._saved_bytes = 0
        self._steps = Steps(case, plsc_tf.strategy(case.num_replicas), self._watch)
        self._steps.run(case.warmup, "warm-up step")

    def run(self):
        """Times everything once."""
        from plsc_tf.checkpoints import writer
        from plsc_tf.training import state

        model, saved = self._steps.model, str(self._saved)
        with self._measured("save_low_memory"):
            content = state.snapshot(model, {}, held=False)
            self._saved_bytes = writer.save(saved, content)
        self._copy("cp")
        os.sync()
        self._steps.run(self._case.steps)
        self._save_in_background(f"{saved}_too")
        self._copy("cp_while_training", while_training=True)
        self._copy("cp")
        forget(self._saved)
        self._copy("cp_cold")
        forget(self._saved)
        for name in ("restore_cold", "restore"):
            with self._measured(name):
                state.restore(saved, model)
        shutil.rmtree(saved)

    def _save_in_background(self, path):
        """Saves while training goes on."""
        from plsc_tf.checkpoints import writer
        from plsc_tf.training import state

        os.sync()
        with self._memory("save_background"):
            with self._watch.time("waited"):
                content = state.snapshot(self._steps.model, {})
            save = functools.partial(writer.save, path, content)
            self._step_during("step_while_saving", "save_background", save)
        shutil.rmtree(path)

    def _copy(self, name, while_training=False):
        copied = functools.partial(copy, self._saved, self._copied)
        os.sync()
        if while_training:
            self._step_during("step_while_copying", name, copied)
        else:
            with self._watch.time(name):
                copied()
        shutil.rmtree(self._copied)

    def _step_during(self, step, name, function):
        """Calls a function in the background, timed as `name`, and trains meanwhile."""
        from plsc_tf.checkpoints.writer import BackgroundSaver

        def timed():
            with self._watch.time(name):
                function()

        saver, times = BackgroundSaver(), self._watch.seconds[step]
        first = len(times)
        saver.submit(timed)
        while saver.busy or len(times) == first:
            self._steps.run(1, step)
        saver.wait()
        # The last one went on after the end of the function, for a part of it.
        if len(times) > first + 1:
            times.pop()

    @contextlib.contextmanager
    def _measured(self, name):
        os.sync()
        with self._memory(name), self._watch.time(name):
            yield

    @contextlib.contextmanager
    def _memory(self, name):
        before = machine.reset_peak_rss()
        yield
        self._extra_bytes[name].append(machine.peak_rss() - before)

    def figures(self):
        """The ratios, from the medians of all rounds; see benchmarks/README.md."""
        seconds, cpu_seconds = self._watch.medians()
        extra = {name: max(grown) / 1e6 for name, grown in self._extra_bytes.items()}
        waits = ("save_low_memory", "restore_cold", "restore")
        ratios = {
            "wait_ratio": ("waited", "save_background"),
            "save_vs_cp": ("cp", "save_low_memory"),
            "save_background_vs_cp": ("cp_while_training", "save_background"),
            "restore_vs_cp": ("cp_cold", "restore_cold"),
            "restore_cached_vs_cp": ("cp", "restore"),
            "speed_while_saving": ("step", "step_while_saving"),
            "speed_while_copying": ("step", "step_while_copying"),
        }
        return {
            **{name: seconds[a] / seconds[b] for name, (a, b) in ratios.items()},
            "extra_memory_mb": max(extra[name] for name in waits),
            "saved_mb": self._saved_bytes / 1e6,
            "extra_mb": extra,
            "seconds": seconds,
            "cpu_seconds": {name: cpu_seconds[name] for name in waits},
            "rounds_s": dict(self._watch.seconds),
        }


def copy(source, target):
    """Copies a folder with the shell's commands `cp` and `sync`."""
    subprocess.run(["cp", "-r", source, target], check=True)
    subprocess.run(["sync"], check=True)


def forget(folder):
    """Drops the files of a folder from the system's cache."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


if __name__ == "__main__":
    options.run(main, CheckpointCase, __doc__)
