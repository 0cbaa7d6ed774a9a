"""Moments at which a training run is killed."""

import dataclasses
import os
import re

# Names of checkpoints; names with more after them are of what is being written.
CHECKPOINT = re.compile(r"\d+|step_\d+")
WRITING = ".writing-"
# Kind of moment and how many of a hundred kills it gets.
SHARES = {"time": 30, "step": 20, "saving": 30, "saved": 10, "end": 10}
# Files and folders of a checkpoint that is all but renamed.
MOST_ENTRIES = 6


@dataclasses.dataclass
class Moment:
    """When to kill, in terms of what can be seen from outside.

    Attributes:
        kind: "time": after `delay_s`; "step": once the losses file has `count` lines
            more; "saving": once the `count`-th checkpoint that is being written has
            `entries` files and folders; "saved": once `count` checkpoints have been
            renamed; "end": once the last step is done.
        count: see `kind`.
        entries: see `kind`.
        delay_s: seconds from then to the kill.
    """

    kind: str
    count: int
    entries: int
    delay_s: float


def draw(random, *, steps, saves, seconds):
    """A moment of an unbroken run.

    Args:
        random: a numpy `Generator`.
        steps: steps of an unbroken run.
        saves: checkpoints that it writes.
        seconds: that it takes.
    """
    names, shares = list(SHARES), list(SHARES.values())
    kind = random.choice(names, p=[share / sum(shares) for share in shares])
    most = {"step": steps, "saving": saves, "saved": saves}.get(kind, 1)
    longest = {"time": seconds, "step": 0.05, "end": 0.3}.get(kind, 0.003)
    return Moment(
        kind=str(kind),
        count=int(random.integers(1, most + 1)),
        entries=int(random.integers(1, MOST_ENTRIES + 1)),
        delay_s=float(random.uniform(0, longest)),
    )


class Watch:
    """Sees a training run reach a moment.

    Args:
        moment: the `Moment`; it stays there as an attribute.
        run_dir: the training's folder.
        last_step: number of the last step.
        training: the `Training`.
    """

    def __init__(self, moment, run_dir, last_step, training):
        self.moment = moment
        self._run_dir = run_dir
        self._training = training
        self._losses = os.path.join(run_dir, "losses.txt")
        self._last = f"{last_step} ".encode()
        self._lines = read(self._losses).count(b"\n")
        self._known = set(checkpoints(run_dir))
        self._written = set()
        self._new = set()
        self._reached_s = None

    def due(self):
        """Whether to kill now; to be asked every millisecond or so."""
        if self._reached_s is None and self._reached():
            self._reached_s = self._training.age_s
        if self._reached_s is None:
            return False
        return self._training.age_s >= self._reached_s + self.moment.delay_s

    def _reached(self):
        moment = self.moment
        if moment.kind == "time":
            return True
        if moment.kind == "step":
            lines = read(self._losses).count(b"\n")
            return lines >= self._lines + moment.count
        if moment.kind == "end":
            last = read(self._losses).rpartition(b"\n")[0].rpartition(b"\n")[2]
            return last.startswith(self._last)
        if moment.kind == "saved":
            self._new.update(set(checkpoints(self._run_dir)) - self._known)
            return len(self._new) >= moment.count
        now = unfinished(self._run_dir)
        self._written.update(now)
        if len(self._written) < moment.count:
            return False
        return any(
            _entries(os.path.join(self._run_dir, name)) >= moment.entries
            for name in now
        )


def checkpoints(run_dir):
    """Names of the whole checkpoints of a run's folder."""
    return [
        name
        for name in _names(run_dir)
        if CHECKPOINT.fullmatch(name)
        and os.path.exists(os.path.join(run_dir, name, "manifest.json"))
    ]


def unfinished(run_dir):
    """Names of the checkpoints that are being written in a run's folder."""
    return [name for name in _names(run_dir) if WRITING in name]


def read(path):
    """A file's bytes; none where it does not exist yet."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _names(folder):
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _entries(folder):
    return sum(len(dirs) + len(files) for _, dirs, files in os.walk(folder))
