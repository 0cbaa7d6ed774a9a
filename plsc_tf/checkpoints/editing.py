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
from plsc_tf.checkpoints.writer import Content, File
from plsc_tf.parallel import packing
from plsc_tf.requirements import require
from plsc_tf.storage import files

# Key of a state whose labels are no longer those of the training data. The value is the
# `Source.contents` of that data, or True if they are unknown.
EDITED = "class_edits"
# The end of the name of an average of rows, see `training.average`.
_AVERAGE = "/average"


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
        state: other values that replace those in the state.
    """

    labels: LabelsMap
    added: Callable | None = None
    fills: dict = dataclasses.field(default_factory=dict)
    dominant: np.ndarray | None = None
    flags: dict = dataclasses.field(default_factory=dict)
    state: dict = dataclasses.field(default_factory=dict)


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
    return writer.save(target, _edited(source, content, changes, weights_only))


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


def _edited(source, content, changes, weights_only):
    """Returns the `Content` of the edited checkpoint; other files are copied."""

    def copied(kind, described):
        path = files.join(source, content[kind]["file"])
        return File(content[kind][described], functools.partial(files.open_read, path))

    training = None
    if content["kind"] == "training" and not weights_only:
        _check_slots(source, content)
        training = copied("training", "variables")
    names = [n for n in content["arrays"] if "/" not in n or not weights_only]
    missing = {name.removesuffix(_AVERAGE) for name in names}
    missing = sorted(missing - {"weight", *changes.fills})
    unknown = f"The initial {', '.join(missing)} of new classes is unknown"
    rule = f"{unknown}: {source} does not name its optimizer"
    require(not (missing and changes.labels.added), rule, "Set --edit_weights_only")
    arrays = {name: _edited_rows(source, content, changes, name) for name in names}
    state = _state(content, changes, training is None)
    return Content(state, copied("backbone", "weights"), arrays, training)


def _edited_rows(source, content, changes, name):
    """Returns the edited rows of an array, stored as they were."""
    stored = rows.StoredRows(source, content["arrays"][name])
    dtype = stored.stored_dtype
    if changes.dominant is not None:
        stored = rows.one_center(stored, changes.dominant)
    name = name.removesuffix(_AVERAGE)
    merge, added = functools.partial(np.mean, axis=0), changes.added
    if name == "bias":
        merge = np.logaddexp.reduce  # adds up the classes' softmax probabilities
    elif name == "weight" and "bias" not in content["arrays"]:
        merge = rows.merge_directions
    if name != "weight":
        fill, shape = changes.fills.get(name), stored.shape[1:]

        def added(low, high):
            return np.full((high - low, *shape), fill)

    edited = rows.edited(stored, changes.labels, merge=merge, added=added)
    return rows.packed(edited, dtype) if packing.is_packed(dtype) else edited


def _state(content, changes, weights_only):
    count = changes.labels.num_classes
    state = {**content["state"], "num_classes": count, **changes.state}
    # It doesn't describe the images of the edited classes.
    before = state.pop("data", {}).get("contents", state.get(EDITED, True))
    if "flags" in state:
        state["flags"] = {**state["flags"], "num_classes": count, **changes.flags}
    if changes.dominant is not None and "head" in state:
        state["head"] = {**state["head"], "sub_centers": 1}
    if weights_only:
        for name in ("optimizer", "replicas", "loss_scale"):
            state.pop(name, None)
    labels = changes.labels.new_labels
    if changes.labels.added or not np.array_equal(labels, np.arange(len(labels))):
        state[EDITED] = before
    return state


def _check_slots(source, content):
    """Raises ValueError if the optimizer's slots of the class weights are not arrays.

    Those of a replicated head are among the optimizer's variables, under numbers.
    """
    arrays, variables = content["arrays"], content["training"]["variables"]
    shapes = [one["shape"] for one in arrays.values()]
    slots = [n for n in variables if variables[n]["shape"] in shapes]
    among = any(name.startswith("optimizer/") for name in slots)
    places = content["state"].get("averages", ())
    among = among or any(f"{place}".startswith("head") for place in places)
    rule = f"The optimizer's slots of the replicated head in {source} cannot be edited"
    sharded = any("/" in name for name in arrays)
    require(sharded or not among, rule, "Leave them out: --edit_weights_only")
