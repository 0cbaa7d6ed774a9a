"""One training of several workers that loses one of them."""

import os
import re
import shutil
import signal

from benchmarks import kill_moments, outcomes
from benchmarks.killed_run import ComparedRun
from benchmarks.members import ended, members

# In which all other workers must have ended.
LIMIT_S = 60.0
RESTARTED = b"Restart 1 of 1."
_ERROR = re.compile(r"^plsc_tf: error: |^[\d:]+ ERROR ")
_BLAMED = re.compile(r"Worker (\d+) \(")


class LostWorkerRun(ComparedRun):
    """A training run that loses a worker and is started again by its launcher.

    Args:
        start: starts the launcher of a training run in a folder.
        run_dir: the training's folder.
        reference: `Outcome` of an undisturbed run of as many workers.
        seed: of the moment and the worker.
        size: number of workers.
        stop: whether the worker is stopped (SIGSTOP) rather than killed.

    Attributes:
        victim: index of the worker that is lost.
        stop: as above.
        saving: whether a checkpoint was being written then.
        stepping: whether steps were under way then, and no checkpoint.
        seconds: until all others had ended, or it was too late.
        in_time: whether all others ended by themselves, in time, with an error that
            names it.
    """

    def __init__(self, start, run_dir, reference, seed, *, size, stop):  # noqa: PLR0913
        super().__init__(run_dir, reference, seed)
        self.stop = stop
        self.victim = int(self._random.integers(size))
        self.saving = self.stepping = self.in_time = False
        self.seconds = None
        self._start = start
        self._size = size
        self._members = []
        self._complete = False

    @property
    def well(self):
        """Whether all is as it should be."""
        return self.in_time and self.resumed and self.exact

    def play(self):
        """Trains, loses the worker and compares; yields while it waits."""
        lost = False
        while not lost:
            with self._start(self._run_dir) as training:
                lost = yield from self._lose_worker(training)
                while not training.ended():
                    yield
            if training.status:
                self._fail(f"status {training.status}")
                return
            if not lost:
                # Too fast for the moment: once more from the beginning.
                self._remove()
        if RESTARTED in kill_moments.read(f"{self._run_dir}.log"):
            self._check_start()
            self._compare()
        else:
            self._fail("it was not started again")
        if self.well:
            self._remove()

    def _lose_worker(self, training):
        """Kills or stops it and watches the others; returns False if it was too late.

        Args:
            training: the launcher.
        """
        # The folder is made once all have joined and tried each other.
        while not os.path.isdir(self._run_dir) and not training.ended():
            yield
        took = self._reference.seconds - self._reference.begins_s
        watch = self._watch_for(training, took)
        while not watch.due() and not training.ended():
            yield
        self._members = members(training.pid)
        steps = set(outcomes.losses(self._run_dir))
        self._complete = max(self._reference.losses) in steps
        if len(self._members) < self._size or (self.stop and self._complete):
            return False
        self._strike(steps, watch.moment)
        struck_s = training.age_s
        others = [member for member in self._members if member.index != self.victim]
        while not ended(others) and training.age_s < struck_s + LIMIT_S:
            yield
        self._judge(others, training.age_s - struck_s)
        while not ended(self._members) and not training.ended():
            yield
        self._note_start()
        return True

    def _strike(self, steps, moment):
        self.saving = bool(kill_moments.unfinished(self._run_dir))
        self.stepping = bool(steps) and not self._complete and not self.saving
        self._members[self.victim].send(signal.SIGSTOP if self.stop else signal.SIGKILL)
        how = "stopped" if self.stop else "killed"
        where = self._where(moment, self.saving)
        self.events.append(f"worker {self.victim} of {self._size} {how} {where}")

    def _judge(self, others, seconds):
        """Records how the others ended, and after how many seconds."""
        self.seconds = seconds
        problems = [problem for m in others if (problem := self._problem(m))]
        self.in_time = not problems
        if problems:
            problems.append(self._run_dir)
            self.events.append(f"NOT IN TIME: {'; '.join(problems)}")
        else:
            self.events.append(f"the others ended after {seconds:.1f} s")

    def _problem(self, member):
        name = f"worker {member.index}"
        if not member.ended:
            return f"{name} still runs after {LIMIT_S:g} s"
        log = f"{self._run_dir}.logs/worker-{member.index}.log"
        text = kill_moments.read(log).decode(errors="replace")
        problem = wrong_end(text, member.status, self.victim, self._complete)
        return f"{name} {problem}" if problem else ""

    def _remove(self):
        """Leaves nothing of it."""
        shutil.rmtree(self._run_dir)
        shutil.rmtree(f"{self._run_dir}.logs")
        os.remove(f"{self._run_dir}.log")


def wrong_end(text, status, victim, complete):
    """What is wrong with how a worker ended when another was lost; empty: nothing.

    Args:
        text: its log, of all attempts.
        status: how it ended, as far as known.
        victim: index of the lost worker.
        complete: whether all steps had been done then, so that it may have ended well.
    """
    first = text.partition(", attempt 2, ")[0]
    if status == -signal.SIGKILL:
        return "did not end by itself: the launcher had to kill it"
    errors = [line for line in first.splitlines() if _ERROR.match(line)]
    if complete and not status and not errors:
        return ""
    blamed = {int(m[1]) for line in errors if (m := _BLAMED.search(line))}
    if blamed == {victim}:
        return ""
    end = "\n".join(first.splitlines()[-5:])
    return f"does not name worker {victim} (status {status}); its log ends:\n{end}"
