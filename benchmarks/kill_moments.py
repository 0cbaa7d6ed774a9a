"""Moments at which a training run is killed."""

import os
import time

from benchmarks import outcomes

# Kind of moment and how many of a hundred kills it gets.
SHARES = {"time": 30, "step": 20, "saving": 30, "saved": 10, "end": 10}
# Files and folders of a checkpoint that is all but renamed.
MOST_ENTRIES = 6


class Moment:
    """A random moment of a training run, recognized from outside.

    Args:
        random: a numpy `Generator`.
        run_dir: the training's folder.
        reference: `Outcome` of an undisturbed run.

    Attributes:
        kind: "time": after a random time; "step": after a random step; "saving": while
            a random checkpoint is being written, at a random one of its files; "saved":
            when a random checkpoint has just got its name; "end": after the last step.
    """

    def __init__(self, random, run_dir, reference):
        names, shares = list(SHARES), list(SHARES.values())
        kind = random.choice(names, p=[share / sum(shares) for share in shares])
        self.kind = str(kind)
        longest = {"time": reference.seconds, "step": 0.05, "end": 0.3}
        self._delay_s = random.uniform(0, longest.get(self.kind, 0.003))
        left = max(reference.losses) - outcomes.newest_step(run_dir)
        steps = left if self.kind == "end" else random.integers(1, max(left, 1) + 1)
        self._lines = len(outcomes.lines(run_dir)) + steps
        self._saves = random.integers(1, reference.saves + 1)
        self._entries = random.integers(1, MOST_ENTRIES + 1)
        self._run_dir = run_dir
        self._known = set(outcomes.checkpoints(run_dir))
        self._seen = set()
        self._due_s = None

    def due(self):
        """Whether it has come; to be asked every millisecond or so."""
        if self._due_s is None and self._reached():
            self._due_s = time.monotonic() + self._delay_s
        return self._due_s is not None and time.monotonic() >= self._due_s

    def _reached(self):
        if self.kind == "time":
            return True
        if self.kind in ("step", "end"):
            return len(outcomes.lines(self._run_dir)) >= self._lines
        if self.kind == "saved":
            self._seen |= set(outcomes.checkpoints(self._run_dir)) - self._known
            return len(self._seen) >= self._saves
        now = outcomes.unfinished(self._run_dir)
        self._seen |= set(now)
        folders = [os.path.join(self._run_dir, name) for name in now]
        return len(self._seen) >= self._saves and any(
            _entries(folder) >= self._entries for folder in folders
        )


def _entries(folder):
    return sum(len(dirs) + len(files) for _, dirs, files in os.walk(folder))
