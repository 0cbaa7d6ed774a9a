"""Runs many trainings of a small network and prints their progress."""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time

from benchmarks import killed_run
from plsc_tf.flags.option import OptionGroup, option

POLL_S = 0.001


class Trainings(OptionGroup):
    """How many trainings, and of which size."""

    runs: int = option(100, "trainings that are killed and resumed", lower=1)
    epochs: int = option(3, "epochs of a training run", lower=1)
    steps_per_epoch: int = option(7, "steps of an epoch", lower=1)
    save_steps: int = option(3, "steps between two checkpoints", lower=1)
    jobs: int = option(0, "trainings at a time; 0: one per core", lower=0)
    seed: int = option(0, "random seed of the kills")
    work_dir: str = option(
        "", "folder for the runs; keeps failed ones. Empty: a temporary one"
    )

    def arguments(self, run_dir):
        """The command line of a training run, but for its program."""
        return [
            "--dataset_name=mock",
            "--model_name=benchmarks.small_network.network",
            "--emb_size=16",
            "--num_classes=23",
            "--image_shape=3,16,16",
            f"--num_sample_per_epoch={8 * self.steps_per_epoch}",
            "--global_batch_size=8",
            f"--num_epochs={self.epochs}",
            f"--save_checkpoints_steps={self.save_steps}",
            "--save_losses",
            "--deterministic",
            "--learning_rate=0.05",
            "--lr_base_batch_size=0",
            "--val_targets=",
            "--notensorboard",
            "--noexport_at_end",
            f"--model_save_dir={run_dir}",
        ]

    def at_a_time(self):
        """How many trainings run at a time."""
        return self.jobs or len(os.sched_getaffinity(0))


class Benchmark:
    """The frame of a benchmark of many trainings.

    Args:
        case: the `Trainings`.
        name: of the benchmark.

    Attributes:
        folder: that the runs have their folders in.
    """

    def __init__(self, case, name):
        self._start = time.perf_counter()
        self._case = case
        # Ends by way of `finally`, so that no process is left behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        self.folder = case.work_dir or tempfile.mkdtemp(prefix=f"{name}-")
        os.makedirs(os.path.join(self.folder, "tmp"), exist_ok=True)

    def unbroken(self, start, count, kind="undisturbed"):
        """The `Outcome` of trainings that nothing disturbs.

        Args:
            start: starts the `Training` in a folder.
            count: how many.
            kind: what to call them.

        Raises:
            RuntimeError: they differ, so that nothing could be compared with them.
        """
        runs = [
            killed_run.UnbrokenRun(start, os.path.join(self.folder, f"{kind}_{i}"))
            for i in range(count)
        ]
        for _ in self._play(runs):
            pass
        first, *others = [run.outcome for run in runs]
        for other in others:
            if problem := first.differs(other):
                raise RuntimeError(
                    f"Two {kind} trainings differ in {problem}: kept in {self.folder}"
                )
        sys.stderr.write(
            f"{count} {kind}: {first.seconds:.1f} s, {len(first.losses)} steps, "
            f"{first.saves} checkpoints{', all equal' if others else ''}\n"
        )
        return first

    def run(self, make):
        """Executes the runs and returns them; prints a line on each to standard error.

        Args:
            make: returns a run, given its index and folder; a run has `play()`,
                `exact` and `events`.
        """
        runs = [
            make(i, os.path.join(self.folder, f"run_{i:04d}"))
            for i in range(self._case.runs)
        ]
        start, exact = time.perf_counter(), 0
        for done, run in enumerate(self._play(runs), 1):
            exact += run.exact
            rate = done / (time.perf_counter() - start)
            sys.stderr.write(
                f"{done} of {len(runs)} runs, {exact} exact, {60 * rate:.1f} runs/min, "
                f"{(len(runs) - done) / rate:.0f} s left: {', '.join(run.events)}\n"
            )
        return runs

    def close(self, figures, perfect):
        """Prints the figures as JSON and returns the exit status."""
        if perfect:
            shutil.rmtree(self.folder)
        else:
            sys.stderr.write(f"What failed stays in {self.folder}\n")
        seconds = round(time.perf_counter() - self._start, 1)
        print(json.dumps({**figures, "seconds": seconds}))
        return 0 if perfect else 1

    def _play(self, runs):
        """Yields each run when it is over; some play at a time."""
        waiting, playing = list(reversed(runs)), {}
        with contextlib.ExitStack() as stack:
            while waiting or playing:
                while waiting and len(playing) < self._case.at_a_time():
                    run = waiting.pop()
                    playing[run] = stack.enter_context(contextlib.closing(run.play()))
                time.sleep(POLL_S)
                # A run that is over has no next turn.
                over = [run for run, turns in playing.items() if next(turns, run)]
                for run in over:
                    del playing[run]
                    yield run
