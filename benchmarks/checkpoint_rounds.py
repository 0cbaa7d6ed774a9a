"""What `benchmarks.checkpoint` times, by turns."""

import collections
import contextlib
import os
import pathlib
import shutil
import statistics
import subprocess
import time

import plsc_tf
from benchmarks import machine
from benchmarks.steps import NUM_BATCHES, make_batches, make_model
from plsc_tf.checkpoints import writer
from plsc_tf.checkpoints.writer import BackgroundSaver
from plsc_tf.training import state

WARMUP = 2


class Rounds:
    """A model, and the seconds of what is done with its checkpoints.

    Args:
        case: the `CheckpointCase`.
        folder: an empty folder to write in.

    Attributes:
        seconds: `{what: [seconds in each round]}`.
        cpu_seconds: the processor's, all cores together, of some of these.
        extra_bytes: `{what: [growth of the resident memory in each round]}`.
        saved_bytes: size of a checkpoint.
    """

    def __init__(self, case, folder):
        self.seconds = collections.defaultdict(list)
        self.cpu_seconds = collections.defaultdict(list)
        self.extra_bytes = collections.defaultdict(list)
        self.saved_bytes = 0
        self._steps = case.steps
        self._folder = pathlib.Path(folder)
        self._done = 0
        head, strategy = case.head(), plsc_tf.strategy(case.num_replicas)
        self._model = make_model(head, strategy)
        self._batches = make_batches(head, strategy)
        for _ in range(WARMUP):
            self._step()

    def run(self):
        """Times everything once."""
        saved, copied = self._folder / "saved", self._folder / "copied"
        self._save_low_memory(saved)
        self._copy("cp", saved, copied)
        self._steps_alone()
        self._save_in_background(self._folder / "second")
        self._copy_in_background(saved, copied)
        self._copy("cp", saved, copied)
        for name, cold in (("_cold", True), ("", False)):
            if cold:
                forget(saved)
                self._copy("cp_cold", saved, copied)
                forget(saved)
            with self._timed(f"restore{name}"):
                state.restore(str(saved), self._model)
        shutil.rmtree(saved)

    def _save_low_memory(self, path):
        with self._timed("save_low_memory"):
            content = state.snapshot(self._model, {}, held=False)
            self.saved_bytes = writer.save(str(path), content)

    def _save_in_background(self, path):
        """Saves while training goes on."""
        saver, content = BackgroundSaver(), []

        def save():
            writer.save(str(path), content.pop())

        os.sync()
        with self._memory("save_background"), machine.no_garbage_collection():
            start = time.perf_counter()
            content.append(state.snapshot(self._model, {}))
            saver.submit(lambda: self._clocked("save_background", save))
            self.seconds["waited"].append(time.perf_counter() - start)
            steps = self._steps_while(saver)
        self.seconds["step_while_saving"].append(statistics.median(steps))
        shutil.rmtree(path)

    def _copy_in_background(self, source, target):
        """The same with `cp` and `sync`, for a comparison between equals."""
        saver = BackgroundSaver()
        os.sync()
        with machine.no_garbage_collection():
            saver.submit(
                lambda: self._clocked("cp_while_training", lambda: copy(source, target))
            )
            steps = self._steps_while(saver)
        self.seconds["step_while_copying"].append(statistics.median(steps))
        shutil.rmtree(target)

    def _steps_alone(self):
        os.sync()
        with machine.no_garbage_collection():
            steps = [self._step() for _ in range(self._steps)]
        self.seconds["step"].append(statistics.median(steps))

    def _steps_while(self, saver):
        """Seconds of the training steps until a save has ended."""
        steps = []
        while saver.busy:
            steps.append(self._step())
        saver.wait()
        # The last one went on after the end of the save, for a part of it.
        return steps[:-1] or steps or [self._step()]

    def _copy(self, name, source, target):
        os.sync()
        self._clocked(name, lambda: copy(source, target))
        shutil.rmtree(target)

    def _clocked(self, name, function):
        start = time.perf_counter()
        function()
        self.seconds[name].append(time.perf_counter() - start)

    def _step(self):
        """Seconds of a training step."""
        start = time.perf_counter()
        self._model.trainer.run_step(self._batches[self._done % NUM_BATCHES])
        self._done += 1
        return time.perf_counter() - start

    @contextlib.contextmanager
    def _timed(self, name):
        os.sync()
        with self._memory(name), machine.no_garbage_collection():
            start, busy = time.perf_counter(), time.process_time()
            yield
            self.seconds[name].append(time.perf_counter() - start)
            self.cpu_seconds[name].append(time.process_time() - busy)

    @contextlib.contextmanager
    def _memory(self, name):
        before = machine.reset_peak_rss()
        yield
        self.extra_bytes[name].append(machine.peak_rss() - before)


def copy(source, target):
    """`cp` and `sync`, as somebody would do it in a shell."""
    subprocess.run(["cp", "-r", source, target], check=True)
    subprocess.run(["sync"], check=True)


def forget(folder):
    """Drops the files of a folder from the system's cache."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
