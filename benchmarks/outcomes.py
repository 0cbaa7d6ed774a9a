"""What a training run left in its folder, read without the code that is examined."""

import dataclasses
import json
import os
import pathlib
import re

# Of a checkpoint's state: what does not depend on how often a run was resumed. The end
# of an epoch is also the beginning of the next, so epoch and step are left out.
STATE = ("global_step", "head_state", "loss_scale", "replicas")
# Names with more after them are of checkpoints that are being written or removed.
_CHECKPOINT = re.compile(r"\d+|step_\d+")


@dataclasses.dataclass
class Outcome:
    """What a finished training run left behind, and what an undisturbed one took.

    Attributes:
        losses: `{global step: set of losses}`, each as hexadecimal text.
        files: `{path: bytes}` of the last checkpoint, without its manifest.
        state: dict of the same.
        seconds: from the creation of its folder to its end.
        saves: checkpoints that were written.
    """

    losses: dict
    files: dict
    state: dict
    seconds: float = 0.0
    saves: int = 0

    @classmethod
    def read(cls, run_dir):
        """Reads a run's folder."""
        states = _states(run_dir)
        last = max(states, key=lambda n: (states[n]["global_step"], states[n]["epoch"]))
        folder = pathlib.Path(run_dir, last)
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name != "manifest.json"
        }
        state = {name: states[last][name] for name in STATE}
        return cls(losses(run_dir), files, state)

    def differs(self, other):
        """What of another outcome is not the same bit for bit; empty: nothing."""
        if self.state != other.state:
            return f"the state: {self.state} and {other.state}"
        for what, mine, theirs in (
            ("the loss of step", self.losses, other.losses),
            ("the file", self.files, other.files),
        ):
            for name in sorted({*mine, *theirs}):
                if mine.get(name) != theirs.get(name):
                    return f"{what} {name}"
        return ""


def newest_step(run_dir):
    """Step of the newest whole checkpoint; 0: there is none."""
    steps = [state["global_step"] for state in _states(run_dir).values()]
    return max(steps, default=0)


def checkpoints(run_dir):
    """Names of the whole checkpoints."""
    return [
        name
        for name in _names(run_dir)
        if _CHECKPOINT.fullmatch(name)
        and os.path.exists(os.path.join(run_dir, name, "manifest.json"))
    ]


def unfinished(run_dir):
    """Names of the checkpoints that are being written or removed."""
    return [
        name
        for name in _names(run_dir)
        if _CHECKPOINT.match(name) and not _CHECKPOINT.fullmatch(name)
    ]


def lines(run_dir):
    """The whole lines of the file of losses."""
    return read(f"{run_dir}/losses.txt").split("\n")[:-1]


def losses(run_dir):
    """The losses: `{global step: set of them}`, as hexadecimal text."""
    found = {}
    for line in lines(run_dir):
        step, loss = line.split()
        found.setdefault(int(step), set()).add(loss)
    return found


def log_end(run_dir):
    """The last lines of a run's log."""
    return "\n".join(read(f"{run_dir}.log").splitlines()[-20:])


def read(path):
    """A file's text; none where it does not exist yet."""
    try:
        return pathlib.Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def _names(run_dir):
    return os.listdir(run_dir) if os.path.isdir(run_dir) else []


def _states(run_dir):
    """`{name: state}` of the whole checkpoints."""
    return {
        name: json.loads(read(f"{run_dir}/{name}/manifest.json"))["state"]
        for name in checkpoints(run_dir)
    }
