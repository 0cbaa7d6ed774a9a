"""Removes, merges and adds classes of a checkpoint; writes a new checkpoint.

No model is built: files unrelated to the classes are copied, and class rows are
streamed from the old files to new ones.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from plsc_tf.checkpoints import manifest, reader, rows, writer
from plsc_tf.checkpoints.labels_map import LabelsMap
from plsc_tf.checkpoints.rows import EditedRows, StoredRows
from plsc_tf.parallel import packing
from plsc_tf.requirements import require
from plsc_tf.storage import files

# Key of a state whose labels are no longer those of the training data.
EDITED = "class_edits"


@dataclasses.dataclass(frozen=True)
class Edit:
    """Describes a change to the classes.

    Attributes:
        labels: the `LabelsMap`.
        added: function of (first, last + 1) that returns rows of the new classes,
            which are numbered from 0; None if there are no new classes.
        fills: `{array: number}`, initial values of the new classes in other arrays:
            "bias" and the optimizer's slots, such as "weight/velocity".
        dominant: int `[old_classes]`, the index of the center to keep for each class;
            None if each class has one center.
        flags: option values that replace those stored in the checkpoint's state.
    """

    labels: LabelsMap
    added: Callable | None = None
    fills: dict = dataclasses.field(default_factory=dict)
    dominant: np.ndarray | None = None
    flags: dict = dataclasses.field(default_factory=dict)


def edit(source: str, target: str, changes: Edit, *, weights_only: bool = False) -> int:
    """Writes a checkpoint with edited classes; doesn't change the source.

    Rows and slots of unaffected classes are identical to the bit.

    Args:
        source: folder of a checkpoint with a head.
        target: folder to create.
        changes: the `Edit`.
        weights_only: whether to omit the values that are needed only to resume.

    Returns:
        the number of bytes written.

    Raises:
        DamagedCheckpointError: a source file differs from the one that was written.
        FileExistsError: the target already exists.
        ValueError: the source has no head, its state cannot be edited, or it has
            several centers per class and `changes` doesn't choose one.
    """
    content = manifest.read(source)
    check_centers(source, content, changes.dominant is not None)
    reader.verify(source, content)
    return writer.save(target, _Edited(source, content, changes, weights_only))


def check_centers(source: str, content: dict, dropping: bool) -> None:
    """Checks that each class has one center, or several if `dropping` is true.

    Raises:
        ValueError: the classes have several centers, none to drop, or no rows at all.
    """
    rule = f"The checkpoint {source} has no class weights, so no classes can be edited"
    require("weight" in content["arrays"], rule, "Choose a checkpoint with a head")
    shape = content["arrays"]["weight"]["shape"]
    several = len(shape) == 3  # noqa: PLR2004 - [classes, sub_centers, emb]
    centers = shape[1] if several else 1
    rule = f"The checkpoint {source} has {centers} centers per class. Expected one"
    advice = "Drop the others: --edit_dir=<new folder> --drop_sub_centers"
    require(dropping or not several, rule, advice)
    rule = f"The checkpoint {source} has one center per class, so none can be dropped"
    require(several or not dropping, rule, "Leave out drop_sub_centers")


class _Edited:
    """Implements the interface of `Content` for an edited checkpoint's files."""

    held = False

    def __init__(self, source, content, changes, weights_only):
        self._source, self._content, self._edit = source, content, changes
        self.kind = "weights" if weights_only else content["kind"]
        self.state = _state(content, changes, self.kind)
        if self.kind == "training":
            _check_slots(source, content)
        names = [n for n in content["arrays"] if "/" not in n or not weights_only]
        self._check_fills(set(names))
        self.arrays = {name: self._stored(name) for name in names}

    def backbone_file(self):
        """Yields the unchanged backbone file."""
        return self._copy(self._content["backbone"]["file"])

    def variables_file(self):
        """Yields the unchanged file of the variables needed to resume."""
        return self._copy(self._content["training"]["file"])

    def describe_backbone(self):
        """Returns the description of the source's backbone."""
        return self._content["backbone"]["weights"]

    def describe_variables(self):
        """Returns the source's description of the variables needed to resume."""
        return self._content["training"]["variables"]

    def _stored(self, name):
        """Returns the edited rows of a file, stored as they were."""
        source = stored = StoredRows(self._source, self._content["arrays"][name])
        if self._edit.dominant is not None:
            stored = rows.one_center(stored, self._edit.dominant)
        merge, added = functools.partial(np.mean, axis=0), self._edit.added
        if name == "bias":
            merge = np.logaddexp.reduce  # adds up the classes' softmax probabilities
        elif name == "weight" and "bias" not in self._content["arrays"]:
            merge = rows.merge_directions
        if name != "weight":
            fill, shape = self._edit.fills.get(name), stored.shape[1:]

            def added(low, high):
                return np.full((high - low, *shape), fill)

        edited = EditedRows(stored, self._edit.labels, merge=merge, added=added)
        if packing.is_packed(source.stored_dtype):
            return rows.packed(edited, source.stored_dtype)
        return edited

    def _check_fills(self, names):
        missing = sorted(names - {"weight", *self._edit.fills})
        unknown = f"The initial {', '.join(missing)} of new classes is unknown"
        rule = f"{unknown}: {self._source} does not name its optimizer"
        fits = not missing or not self._edit.labels.added
        require(fits, rule, "Set --edit_weights_only")

    def _copy(self, name):
        return files.open_read(files.join(self._source, name))


def _state(content, changes, kind):
    state = {**content["state"], "num_classes": changes.labels.num_classes}
    state.pop("data", None)  # It doesn't describe the images of the edited classes.
    if "flags" in state:
        flags = {"num_classes": changes.labels.num_classes, **changes.flags}
        state["flags"] = {**state["flags"], **flags}
    if changes.dominant is not None and "head" in state:
        state["head"] = {**state["head"], "sub_centers": 1}
    if kind != "training":
        for name in ("optimizer", "replicas", "loss_scale"):
            state.pop(name, None)
    labels = changes.labels.new_labels
    if changes.labels.added or not np.array_equal(labels, np.arange(len(labels))):
        state[EDITED] = True
    return state


def _check_slots(source, content):
    """Raises ValueError if the optimizer's slots of the class weights are not arrays.

    Those of a replicated head are among the optimizer's variables, under numbers.
    """
    arrays, variables = content["arrays"], content["training"]["variables"]
    shapes = [one["shape"] for one in arrays.values()]
    slots = [n for n in variables if variables[n]["shape"] in shapes]
    among = any(name.startswith("optimizer/") for name in slots)
    rule = f"The optimizer's slots of the replicated head in {source} cannot be edited"
    sharded = any("/" in name for name in arrays)
    require(sharded or not among, rule, "Leave them out: --edit_weights_only")
