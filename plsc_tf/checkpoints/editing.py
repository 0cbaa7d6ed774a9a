"""A new checkpoint out of a trained one: classes removed, merged and added.

No model is built: files that have nothing to do with classes are copied, class rows
are streamed from the old files to new ones.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from plsc_tf.checkpoints import manifest, reader, rows, writer
from plsc_tf.checkpoints.labels_map import LabelsMap
from plsc_tf.checkpoints.rows import DominantRows, EditedRows, RowsInMemory, StoredRows
from plsc_tf.storage import files

# Key of a state with the edits of its classes, the last edit last.
EDITS = "class_edits"


@dataclasses.dataclass(frozen=True)
class Edit:
    """A change of the classes.

    Attributes:
        labels: the `LabelsMap`.
        weights: float64 [old classes], how much each counts in a merge, such as its
            number of images; None: equally.
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


def edit(source: str, target: str, changes: Edit, *, weights_only: bool = False) -> int:
    """Writes a checkpoint with edited classes; the source stays as it is.

    Rows and slots of classes that are not touched are the same bit by bit.

    Args:
        source: folder of a checkpoint with a head.
        target: folder to make.
        changes: the `Edit`.
        weights_only: leave out the state that only a resume needs.

    Returns:
        bytes written.

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


def check_centers(source: str, content: dict, dropping: bool) -> None:
    """Checks that classes have one center, or that all but one are to be dropped.

    Raises:
        ValueError: they have several, or there is none to drop.
    """
    shape = content["arrays"]["weight"]["shape"]
    several = len(shape) == 3  # noqa: PLR2004 - [classes, sub_centers, emb]
    if several and not dropping:
        raise ValueError(
            f"Checkpoint {source} has {shape[1]} centers per class; expected one. "
            "Drop the others: --edit_dir=<new folder> --drop_sub_centers."
        )
    if dropping and not several:
        raise ValueError(
            f"Checkpoint {source} has one center per class: there are none to drop. "
            "Leave out drop_sub_centers."
        )


class _Edited:
    """The interface of `Content` over the files of a checkpoint."""

    def __init__(self, source, content, changes, weights_only):
        self._source, self._content, self._edit = source, content, changes
        self.kind = "weights" if weights_only else content["kind"]
        self.state = _state(source, content, changes, self.kind)
        self._dense = _dense_slots(source, content) if self.kind == "training" else {}
        names = [n for n in content["arrays"] if "/" not in n or not weights_only]
        self._check_fills({*names, *self._dense.values()})
        self.arrays = {
            name: self._edited(name, name, StoredRows(source, content["arrays"][name]))
            for name in names
        }

    def backbone_file(self):
        """The backbone's file as it is."""
        return self._copy(self._content["backbone"]["file"])

    def variables_file(self):
        """The variables of a resume, edited where they are slots of a head."""
        if not self._dense:
            return self._copy(self._content["training"]["file"])
        described = self._content["training"]["variables"]
        stored = reader.read_variables(self._source, self._content, described)
        for name, slot in self._dense.items():
            edited = self._edited(name, slot, RowsInMemory(stored[name]))
            stored[name] = edited.read(*edited.here())
        return writer.numpy_archive(stored)

    def describe_backbone(self):
        """The description of the source's backbone."""
        return self._content["backbone"]["weights"]

    def describe_variables(self):
        """The source's description, with the new number of classes."""
        first = 1 if self._edit.dominant is None else 2
        described = dict(self._content["training"]["variables"])
        for name in self._dense:
            old = described[name]
            shape = [self._edit.labels.num_classes, *old["shape"][first:]]
            described[name] = {**old, "shape": shape}
        return described

    def _edited(self, name, slot, stored):
        if self._edit.dominant is not None:
            stored = DominantRows(stored, self._edit.dominant)
        merge, added = rows.merge_means, self._edit.added
        if name == "bias":
            merge = rows.merge_biases
        elif name == "weight" and "bias" not in self._content["arrays"]:
            merge = rows.merge_directions
        if name != "weight":
            fill, shape = self._edit.fills.get(slot), stored.shape[1:]
            added = functools.partial(_filled, fill, shape)
        weights = self._edit.weights
        return EditedRows(
            stored, self._edit.labels, merge=merge, weights=weights, added=added
        )

    def _check_fills(self, names):
        missing = sorted(names - {"weight", *self._edit.fills})
        if missing and self._edit.labels.added:
            raise ValueError(
                f"Cannot tell which {', '.join(missing)} a new class starts with: "
                f"{self._source} does not name its optimizer as the command does. "
                "Leave out what only a resume needs: --edit_weights_only."
            )

    def _copy(self, name):
        return functools.partial(files.open_read, files.join(self._source, name))


def _filled(value, row_shape, low, high):
    return np.full((high - low, *row_shape), value)


def _state(source, content, changes, kind):
    state = {**content["state"], "num_classes": changes.labels.num_classes}
    state.pop("data", None)  # the images of the edited classes are others
    if "flags" in state:
        flags = {"num_classes": changes.labels.num_classes, **changes.flags}
        state["flags"] = {**state["flags"], **flags}
    if changes.dominant is not None and "head" in state:
        state["head"] = {**state["head"], "sub_centers": 1}
    if kind != "training":
        for name in ("optimizer", "replicas", "loss_scale"):
            state.pop(name, None)
    described = {"source": source, **changes.labels.describe(changes.names)}
    state[EDITS] = [*state.get(EDITS, []), described]
    return state


def _dense_slots(source, content):
    """`{variable: slot}` of a head that every replica holds, by their shapes.

    Its slots are among the optimizer's other variables, in the order of its slots.

    Raises:
        ValueError: a weight of the backbone has the same shape.
    """
    slots = {}
    if any("/" in name for name in content["arrays"]):
        return slots
    shapes = [weight["shape"] for weight in content["backbone"]["weights"]]
    for name in sorted({"weight", "bias"} & set(content["arrays"])):
        shape = content["arrays"][name]["shape"]
        alike = [
            variable
            for variable, described in sorted(content["training"]["variables"].items())
            if variable.startswith("optimizer/") and described["shape"] == shape
        ]
        if alike and shape in shapes:
            raise ValueError(
                f"In {source} the head's {name} has the shape {shape} of a weight of "
                "the backbone, so their optimizer state cannot be told apart. Leave "
                "out what only a resume needs: --edit_weights_only."
            )
        slots.update({one: f"{name}/{number}" for number, one in enumerate(alike)})
    return slots
