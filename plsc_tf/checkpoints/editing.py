"""A new checkpoint out of a trained one: classes removed, merged and added.

No model is built: files that have nothing to do with classes are copied, class rows
are streamed from the old files to new ones.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from plsc_tf.checkpoints import edited_rows, manifest, reader, writer
from plsc_tf.checkpoints.edited_rows import EditedRows
from plsc_tf.checkpoints.labels_map import LabelsMap
from plsc_tf.checkpoints.stored_rows import DominantRows, RowsInMemory, StoredRows
from plsc_tf.storage import files

# Key of a state with the edits of its classes, the last edit last.
EDITS = "class_edits"


@dataclasses.dataclass(frozen=True)
class Edit:
    """A change of the classes.

    Attributes:
        labels: the `LabelsMap`.
        weights: float64 [old classes], how much each counts in a merge, such as its
            number of pictures; None: equally.
        added: function of (first, last + 1) that returns rows of new classes,
            counted from 0; None where there are none.
        fills: `{array: number}` that other arrays have for new classes: "bias", and
            the optimizer's slots, such as "weight/velocity".
        names: of the new classes.
        dominant: int [old classes], which of several centers of a class stays as its
            only one; None where each has one.
        flags: options of the run that the result belongs to, in place of its own.
    """

    labels: LabelsMap
    weights: np.ndarray | None = None
    added: Callable | None = None
    fills: dict = dataclasses.field(default_factory=dict)
    names: tuple = ()
    dominant: np.ndarray | None = None
    flags: dict = dataclasses.field(default_factory=dict)


def edit(source, target, changes, *, weights_only=False):
    """Writes a checkpoint with edited classes; the source stays as it is.

    Rows and slots of classes that are not touched are the same bit by bit.

    Args:
        source: folder of a checkpoint with a head.
        target: folder to make.
        changes: the `Edit`.
        weights_only: leave out the state that only a resume needs.

    Returns:
        int: bytes written.

    Raises:
        DamagedCheckpointError: a file of the source is not what was written.
        FileExistsError: the target already exists.
        ValueError: the source has no head, state that cannot be edited, or several
            centers per class of which none is chosen.
    """
    content = manifest.read(source)
    if "weight" not in content["arrays"]:
        raise ValueError(f"Checkpoint {source} holds no class rows to edit.")
    check_centers(source, content, changes.dominant is not None)
    reader.verify(source, content)
    return writer.save(target, _Edited(source, content, changes, weights_only))


def check_centers(source, content, dropping):
    """Checks that classes have one center, or that all but one are to be dropped.

    Raises:
        ValueError: they have several, or there is none to drop.
    """
    shape = content["arrays"]["weight"]["shape"]
    several = len(shape) == 3  # noqa: PLR2004 - [classes, sub_centers, emb]
    if several and not dropping:
        raise ValueError(
            f"Checkpoint {source} has {shape[1]} centers per class, which this does "
            "not do. Write a checkpoint with one center per class first, or at the "
            "same time: --edit_dir=<new folder> --drop_sub_centers."
        )
    if dropping and not several:
        raise ValueError(
            f"Checkpoint {source} has one center per class: there are none to drop. "
            "Leave out drop_sub_centers, or train with --sub_centers=3."
        )


class _Edited:
    """The interface of `Content` over the files of a checkpoint."""

    def __init__(self, source, content, changes, weights_only):
        self._source, self._content, self._edit = source, content, changes
        self.kind = "weights" if weights_only else content["kind"]
        self.state = _state(source, content, changes, self.kind)
        names = [n for n in content["arrays"] if "/" not in n or not weights_only]
        self.arrays = {
            name: self._edited(name, name, StoredRows(source, content["arrays"][name]))
            for name in names
        }
        self._dense = {}
        if self.kind == "training":
            self._dense = _dense_slots(source, content)
            self._check_fills(self._dense.values())
        self._check_fills(self.arrays)

    def save_backbone(self, path):
        """Copies the backbone's file."""
        self._copy(self._content["backbone"]["file"], path)

    def save_variables(self, path):
        """Copies what a resume needs; edits the slots of a head that is not sharded."""
        name = self._content["training"]["file"]
        if not self._dense:
            self._copy(name, path)
            return
        described = self._content["training"]["variables"]
        stored = reader.read_variables(self._source, self._content, described)
        for variable, slot in self._dense.items():
            rows = RowsInMemory(stored[variable])
            stored[variable] = self._edited(variable, slot, rows).whole()
        with open(path, "wb") as file:
            np.savez(file, **stored)

    def describe_backbone(self):
        """What the source says of its backbone."""
        return self._content["backbone"]["weights"]

    def describe_variables(self):
        """What the source says, with other numbers of classes."""
        classes = self._edit.labels.num_classes
        first = 1 if self._edit.dominant is None else 2
        return {
            name: {**told, "shape": [classes, *told["shape"][first:]]}
            if name in self._dense
            else told
            for name, told in self._content["training"]["variables"].items()
        }

    def _edited(self, name, slot, stored):
        if self._edit.dominant is not None:
            stored = DominantRows(stored, self._edit.dominant)
        with_bias = "bias" in self._content["arrays"]
        rules = {
            "weight": edited_rows.merge_directions,
            "bias": edited_rows.merge_biases,
        }
        if with_bias:
            del rules["weight"]
        added = self._edit.added
        if name != "weight":
            fill, shape = self._edit.fills.get(slot), stored.shape[1:]
            added = functools.partial(_filled, fill, shape)
        return EditedRows(
            stored,
            self._edit.labels,
            merge=rules.get(name, edited_rows.merge_means),
            weights=self._edit.weights,
            added=added,
        )

    def _check_fills(self, names):
        if not self._edit.labels.added:
            return
        missing = sorted(set(names) - {"weight", *self._edit.fills})
        if missing:
            raise ValueError(
                f"It is not known what {', '.join(missing)} of a new class begins "
                f"with, for which {self._source} would have to name its optimizer as "
                "the command does. Leave what a resume needs out: "
                "--edit_weights_only."
            )

    def _copy(self, name, path):
        place = files.join(self._source, name)
        with open(path, "wb") as file:
            for chunk in files.open_read(place):
                file.write(chunk)


def _filled(value, row_shape, low, high):
    return np.full((high - low, *row_shape), value)


def _state(source, content, changes, kind):
    state = {**content["state"], "num_classes": changes.labels.num_classes}
    state.pop("data", None)  # those of the edited classes are others
    if "flags" in state:
        told = {"num_classes": changes.labels.num_classes, **changes.flags}
        state["flags"] = {**state["flags"], **told}
    if changes.dominant is not None and "head" in state:
        state["head"] = {**state["head"], "sub_centers": 1}
    if kind != "training":
        for name in ("optimizer", "replicas", "loss_scale"):
            state.pop(name, None)
    told = {"source": source, **changes.labels.describe(changes.names)}
    state[EDITS] = [*state.get(EDITS, []), told]
    return state


def _dense_slots(source, content):
    """`{variable: slot}` of a head that every replica holds, by their shapes.

    Its slots are among the optimizer's other variables, in the order of its slots.

    Raises:
        ValueError: a weight of the backbone has the same shape.
    """
    if any("/" in name for name in content["arrays"]):
        return {}
    found = {}
    shapes = [weight["shape"] for weight in content["backbone"]["weights"]]
    for name in ("weight", "bias"):
        if name not in content["arrays"]:
            continue
        shape = content["arrays"][name]["shape"]
        alike = [
            variable
            for variable, told in sorted(content["training"]["variables"].items())
            if variable.startswith("optimizer/") and told["shape"] == shape
        ]
        if alike and shape in shapes:
            raise ValueError(
                f"In {source} the head's {name} has the shape {shape} of a weight of "
                "the backbone, so that the optimizer's state of the two cannot be "
                "told apart. Leave what a resume needs out: --edit_weights_only."
            )
        for number, variable in enumerate(alike):
            found[variable] = f"{name}/{number}"
    return found
