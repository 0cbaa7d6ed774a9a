"""One training that is killed and resumed, and what is left of it to compare."""

import dataclasses
import json
import os
import shutil

import h5py
import numpy as np

from benchmarks import kill_moments
from benchmarks.processes import Training

# Of a checkpoint's state: what does not depend on how often a run was resumed. The end
# of an epoch is also the beginning of the next, so epoch and step are left out.
STATE = ("global_step", "head_state", "loss_scale", "replicas")


@dataclasses.dataclass
class Outcome:
    """What a finished training left behind, and what undisturbed ones took.

    Attributes:
        losses: `{global step: set of losses}`, each as hexadecimal text.
        arrays: `{name: array}` of the last checkpoint.
        state: dict of the same.
        seconds: that the process took.
        saves: checkpoints that were written.
    """

    losses: dict
    arrays: dict
    state: dict
    seconds: float = 0.0
    saves: int = 0

    @classmethod
    def read(cls, run_dir):
        """Reads a run's folder without any of the code that is being examined."""
        last = max(
            (_manifest(run_dir, name) for name in kill_moments.checkpoints(run_dir)),
            key=lambda found: (found["state"]["global_step"], found["state"]["epoch"]),
        )
        state = {name: last["state"][name] for name in STATE}
        return cls(_losses(run_dir), _arrays(last["path"], last), state)

    def differs(self, other):
        """What of another outcome is not the same bit for bit; empty: nothing."""
        if self.losses != other.losses:
            steps = sorted(set(self.losses) | set(other.losses))
            first = next(n for n in steps if self.losses.get(n) != other.losses.get(n))
            return f"the loss of step {first}"
        if self.state != other.state:
            return f"the state: {self.state} and {other.state}"
        if self.arrays.keys() != other.arrays.keys():
            return "the names of arrays"
        for name, array in self.arrays.items():
            same = array.dtype == other.arrays[name].dtype
            if not same or array.tobytes() != other.arrays[name].tobytes():
                return f"the array {name}"
        return ""


class UnbrokenRun:
    """A training that is left alone.

    Args:
        case: the `KillCase`.
        run_dir: the training's folder.
    """

    def __init__(self, case, run_dir):
        self._case = case
        self._run_dir = run_dir
        self._saved = set()
        self.training = None

    def start(self):
        """Starts the process."""
        self.training = _training(self._case, self._run_dir)

    def poll(self):
        """Whether it has ended.

        Raises:
            RuntimeError: with another exit status than 0.
        """
        self._saved.update(kill_moments.checkpoints(self._run_dir))
        if not self.training.ended():
            return False
        if self.training.status:
            raise RuntimeError(
                f"An undisturbed training ended with status {self.training.status}:\n"
                f"{_log_end(self._run_dir)}"
            )
        return True

    def outcome(self):
        """The `Outcome`."""
        found = Outcome.read(self._run_dir)
        found.seconds, found.saves = self.training.seconds, len(self._saved)
        return found


class KilledRun:
    """A training that is killed at random moments and resumed until it has ended.

    Args:
        case: the `KillCase`.
        run_dir: the training's folder.
        reference: `Outcome` of an undisturbed run.
        seed: of the moments.

    Attributes:
        kills: how often it was killed.
        kills_in_saves: how often while a checkpoint was being written.
        resumed: whether every process went on from the newest whole checkpoint.
        exact: whether what it left is what the undisturbed run left.
    """

    def __init__(self, case, run_dir, reference, seed):
        self.kills = 0
        self.kills_in_saves = 0
        self.resumed = True
        self.exact = False
        self.training = None
        self._case = case
        self._run_dir = run_dir
        self._reference = reference
        self._random = np.random.default_rng(seed)
        self._wanted = int(self._random.integers(1, case.most_kills + 1))
        self._watch = None
        self._told = []
        self._newest = 0
        self._lines = 0

    def start(self):
        """Starts the training, or goes on with it."""
        self._newest = max(
            (
                _manifest(self._run_dir, name)["state"]["global_step"]
                for name in kill_moments.checkpoints(self._run_dir)
            ),
            default=0,
        )
        self._lines = len(_lines(self._run_dir))
        self.training = _training(self._case, self._run_dir)
        self._watch = None
        if self.kills < self._wanted:
            moment = kill_moments.draw(
                self._random,
                steps=len(self._reference.losses),
                saves=self._reference.saves,
                seconds=self._reference.seconds,
            )
            last = max(self._reference.losses)
            self._watch = kill_moments.Watch(moment, self._run_dir, last, self.training)
            self._kind = moment.kind

    def poll(self):
        """Kills the training when it is time; whether all is done."""
        if self._watch is not None and self._watch.due():
            self.training.kill()
        if not self.training.ended():
            return False
        self._check_start()
        if self.training.killed:
            self._count_kill()
            self.start()
            return False
        if self.training.status:
            self._fail(f"status {self.training.status}")
            return True
        if not self.kills:
            # Too fast for the kill: once more from the beginning.
            shutil.rmtree(self._run_dir)
            self.start()
            return False
        self._compare()
        return True

    def told(self):
        """What happened, in a line."""
        return ", ".join(self._told)

    def _check_start(self):
        """Looks whether the process that ended began where it should."""
        problem = wrong_start(_lines(self._run_dir)[self._lines :], self._newest)
        if problem:
            self.resumed = False
            self._told.append(problem)

    def _count_kill(self):
        self.kills += 1
        left = kill_moments.unfinished(self._run_dir)
        self.kills_in_saves += bool(left)
        lines = _lines(self._run_dir)
        step = lines[-1].split()[0] if lines else "0"
        self._told.append(
            f"killed at step {step} ({self._kind}{', in a save' if left else ''})"
        )

    def _compare(self):
        leftovers = [
            name
            for name in os.listdir(self._run_dir)
            if kill_moments.CHECKPOINT.match(name)
            and not kill_moments.CHECKPOINT.fullmatch(name)
        ]
        if leftovers:
            self._fail(f"leftovers {leftovers}")
        elif problem := self._reference.differs(Outcome.read(self._run_dir)):
            self._fail(f"differs in {problem}")
        else:
            self.exact = True
            self._told.append("exact")
            if self.resumed:
                shutil.rmtree(self._run_dir)

    def _fail(self, problem):
        self._told.append(f"NOT EXACT: {problem}; {self._run_dir}")
        self._told.append(f"the end of its log:\n{_log_end(self._run_dir)}")


def wrong_start(lines, newest):
    """What is wrong with where a process began; empty: nothing.

    Args:
        lines: those that it added to the losses file.
        newest: step of the newest whole checkpoint before it; 0: there was none.
    """
    first = int(lines[0].split()[0]) if lines else newest + 1
    if first == newest + 1:
        return ""
    return f"BEGAN WITH STEP {first} after a checkpoint of step {newest}"


def _training(case, run_dir):
    folder = os.path.dirname(run_dir)
    return Training(
        case.arguments(run_dir),
        f"{run_dir}.log",
        os.path.join(folder, "tmp"),
        case.fork,
    )


def _log_end(run_dir):
    text = kill_moments.read(f"{run_dir}.log").decode(errors="replace")
    return "\n".join(text.splitlines()[-20:])


def _lines(run_dir):
    return (
        kill_moments.read(os.path.join(run_dir, "losses.txt")).decode().split("\n")[:-1]
    )


def _losses(run_dir):
    losses = {}
    for line in _lines(run_dir):
        step, loss = line.split()
        losses.setdefault(int(step), set()).add(loss)
    return losses


def _manifest(run_dir, name):
    path = os.path.join(run_dir, name)
    with open(os.path.join(path, "manifest.json"), encoding="utf-8") as file:
        return {**json.load(file), "path": path}


def _arrays(path, manifest):
    """Every array of a checkpoint: `{name: array}`."""
    arrays = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[f"backbone/{name}"] = item[()]

    with h5py.File(os.path.join(path, manifest["backbone"]["file"])) as file:
        file.visititems(visit)
    with np.load(os.path.join(path, manifest["training"]["file"])) as file:
        arrays.update({f"training/{name}": file[name] for name in file.files})
    for name, described in manifest["arrays"].items():
        for part in described["parts"]:
            place = os.path.join(path, part["file"])
            arrays[f"rows/{name}/{part['first']}"] = np.load(place)
    return arrays
