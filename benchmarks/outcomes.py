"""What a finished training run left behind, read without the code that is examined."""

import dataclasses
import json
import os

import h5py
import numpy as np

from benchmarks import kill_moments

# Of a checkpoint's state: what does not depend on how often a run was resumed. The end
# of an epoch is also the beginning of the next, so epoch and step are left out.
STATE = ("global_step", "head_state", "loss_scale", "replicas")


@dataclasses.dataclass
class Outcome:
    """What a finished training run left behind, and what undisturbed ones took.

    Attributes:
        losses: `{global step: set of losses}`, each as hexadecimal text.
        arrays: `{name: array}` of the last checkpoint.
        state: dict of the same.
        seconds: that the process took.
        begins_s: seconds from its start until its folder was there.
        saves: checkpoints that were written.
    """

    losses: dict
    arrays: dict
    state: dict
    seconds: float = 0.0
    begins_s: float = 0.0
    saves: int = 0

    @classmethod
    def read(cls, run_dir):
        """Reads a run's folder without any of the code that is being examined."""
        last = max(
            (_manifest(run_dir, name) for name in kill_moments.checkpoints(run_dir)),
            key=lambda found: (found["state"]["global_step"], found["state"]["epoch"]),
        )
        state = {name: last["state"][name] for name in STATE}
        return cls(losses(run_dir), _arrays(last["path"], last), state)

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


def newest_step(run_dir):
    """Step of the newest whole checkpoint; 0: there is none."""
    found = kill_moments.checkpoints(run_dir)
    steps = [_manifest(run_dir, name)["state"]["global_step"] for name in found]
    return max(steps, default=0)


def log_end(run_dir):
    """The last lines of a run's log."""
    text = kill_moments.read(f"{run_dir}.log").decode(errors="replace")
    return "\n".join(text.splitlines()[-20:])


def lines(run_dir):
    """The whole lines of a run's losses file."""
    content = kill_moments.read(os.path.join(run_dir, "losses.txt"))
    return content.decode().split("\n")[:-1]


def losses(run_dir):
    """The losses of a run: `{global step: set of them}`, as hexadecimal text."""
    found = {}
    for line in lines(run_dir):
        step, loss = line.split()
        found.setdefault(int(step), set()).add(loss)
    return found


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
