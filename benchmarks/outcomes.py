"""What a finished training run left behind, read without the code that is examined."""

import dataclasses
import json
import pathlib

from benchmarks import kill_moments

# Of a checkpoint's state: what does not depend on how often a run was resumed. The end
# of an epoch is also the beginning of the next, so epoch and step are left out.
STATE = ("global_step", "head_state", "loss_scale", "replicas")


@dataclasses.dataclass
class Outcome:
    """What a finished training run left behind, and what undisturbed ones took.

    Attributes:
        losses: `{global step: set of losses}`, each as hexadecimal text.
        files: `{path: bytes}` of the last checkpoint, without its manifest.
        state: dict of the same.
        seconds: that the process took.
        begins_s: seconds from its start until its folder was there.
        saves: checkpoints that were written.
    """

    losses: dict
    files: dict
    state: dict
    seconds: float = 0.0
    begins_s: float = 0.0
    saves: int = 0

    @classmethod
    def read(cls, run_dir):
        """Reads a run's folder without any of the code that is being examined."""
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


def log_end(run_dir):
    """The last lines of a run's log."""
    text = kill_moments.read(f"{run_dir}.log").decode(errors="replace")
    return "\n".join(text.splitlines()[-20:])


def lines(run_dir):
    """The whole lines of a run's losses file."""
    return kill_moments.read(f"{run_dir}/losses.txt").decode().split("\n")[:-1]


def losses(run_dir):
    """The losses of a run: `{global step: set of them}`, as hexadecimal text."""
    found = {}
    for line in lines(run_dir):
        step, loss = line.split()
        found.setdefault(int(step), set()).add(loss)
    return found


def _states(run_dir):
    """`{name: state}` of the whole checkpoints."""
    return {
        name: json.loads(pathlib.Path(run_dir, name, "manifest.json").read_bytes())[
            "state"
        ]
        for name in kill_moments.checkpoints(run_dir)
    }
