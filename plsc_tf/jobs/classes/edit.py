"""From the flags to a checkpoint with edited classes."""

import re

import numpy as np
import tensorflow as tf

from plsc_tf.checkpoints import catalog, editing, manifest
from plsc_tf.checkpoints.labels_map import LabelsMap
from plsc_tf.checkpoints.stored_rows import DominantRows, StoredRows
from plsc_tf.jobs import trained
from plsc_tf.jobs.builders import optimizers, recipe
from plsc_tf.jobs.classes import new_rows, pictures, sub_centers, told
from plsc_tf.options.flagfiles import write_flags
from plsc_tf.parallel.rows import ShardedRows
from plsc_tf.storage import files
from plsc_tf.storage.writer_lock import FolderInUseError, WriterLock
from plsc_tf.training.rules import RowRules

MAP = "labels_map.txt"
_LISTED = re.compile(r"[\d,+\s]+")


def edit(settings):
    """Edits the classes of the checkpoint that the settings mean.

    Args:
        settings: the `Settings`; `classes` says what to do, `storage` which
            checkpoint is meant, `dataset` where the training data are.

    Returns:
        the rows of a table.

    Raises:
        FileExistsError: a folder or file to make is there already.
        FolderInUseError: another process writes into edit_dir.
        FileNotFoundError: there is no checkpoint, list or folder.
        ValueError: classes that are not there, rows of another size, or state that
            cannot be edited; nothing is written.
    """
    given = settings.classes
    source = trained.find(settings.checkpoints)
    content = manifest.read(source)
    _check(given, source, content)
    settings, run = told.settings_of(source, settings)
    if given.new_list:
        pictures.check_listable(settings)
    old = content["state"]["num_classes"]
    removed = [k for group in read_groups(given.remove_classes) for k in group]
    merged = read_groups(given.merge_classes)
    stored = StoredRows(source, content["arrays"]["weight"])
    dominant = None
    if given.drop_sub_centers:
        dominant = sub_centers.find(settings, source, stored)
        stored = DominantRows(stored, dominant.centers)
        run = run.replace(sub_centers=1)
    rows, labels = new_rows.find(
        settings,
        run,
        source,
        stored,
        lambda added: LabelsMap(old, removed, merged, added),
    )
    weights, names, unnamed = _of_the_data(settings, labels)
    fills = {}
    if labels.added:
        fills = _fills(content, run, given.edit_weights_only)
    target = files.join(given.edit_dir, _name(source, content["state"]))
    changes = editing.Edit(
        labels=labels,
        weights=weights,
        added=rows.read,
        fills=fills,
        names=rows.names,
        dominant=dominant and dominant.centers,
        flags={"model_save_dir": given.edit_dir, "sub_centers": run.head.sub_centers},
    )
    beside = files.join(given.edit_dir, MAP)
    try:
        with WriterLock("Give another edit_dir.") as lock:
            lock.acquire(given.edit_dir)
            editing.edit(source, target, changes, weights_only=given.edit_weights_only)
            labels.write(beside, names, rows.names)
    except FolderInUseError:
        raise
    except BaseException:
        # What was written is removed by the writer, so that the folder is empty.
        if files.is_dir(given.edit_dir) and not files.list_dir(given.edit_dir):
            files.remove_tree(given.edit_dir)
        raise
    table = _table(source, target, labels, rows, unnamed) + [("labels map", beside)]
    if dominant is not None:
        table += sub_centers.table(dominant, given.drop_angle)
    table += _list_row(settings, labels, dominant)
    return table + _next(given, content, labels, run)


def _check(given, source, content):
    """Raises an error where nothing can be written or edited."""
    for path in filter(None, (given.edit_dir, given.new_list)):
        if files.exists(path):
            raise FileExistsError(f"'{path}' already exists; nothing is overwritten.")
    if "weight" not in content["arrays"]:
        raise ValueError(f"Checkpoint {source} holds no class rows to edit.")
    editing.check_centers(source, content, given.drop_sub_centers)


def read_groups(text):
    """Groups of labels: "3,17" is two of one, "3+17,5+9" two of two, else a file.

    In a file each line is a group, of labels between spaces.

    Raises:
        FileNotFoundError: neither labels nor a file.
        ValueError: a line of the file holds something else.
    """
    if not text.strip():
        return []
    if _LISTED.fullmatch(text):
        groups = [part.replace("+", " ").split() for part in text.split(",")]
        return [[int(label) for label in group] for group in groups if group]
    if not files.exists(text):
        raise FileNotFoundError(
            "Expected labels such as 3,17 or 3+17, or a file of them. Received: "
            f"{text!r}."
        )
    groups = []
    for number, line in enumerate(files.read(text).decode().splitlines(), 1):
        line = line.partition("#")[0]
        try:
            group = [int(label) for label in line.replace("+", " ").split()]
        except ValueError as error:
            raise ValueError(
                f"{text}, line {number}: expected labels between spaces. Received: "
                f"{line!r}."
            ) from error
        if group:
            groups.append(group)
    return groups


def _of_the_data(settings, labels):
    """(pictures per class or None, names of classes or (), why there are none)."""
    count = len(labels.new_labels)
    needed = labels.groups and settings.classes.merge_weights == "pictures"
    try:
        source = recipe.open_source(settings)
    except (OSError, ValueError, tf.errors.OpError) as error:
        if not needed:
            return None, (), f"the training data cannot be read: {error}"
        raise ValueError(
            "A merge counts the pictures of its classes, but the training data cannot "
            f"be read: {error} Give dataset_name and dataset_dir, or "
            "--merge_weights=equal."
        ) from error
    weights = None
    if needed:
        weights = np.bincount(source.labels, minlength=count).astype(np.float64)
        if len(weights) > count:
            raise ValueError(
                f"The training data have labels up to {len(weights) - 1}, the "
                f"checkpoint has {count} classes. Give the data set that it was "
                "trained on, or --merge_weights=equal."
            )
    names = getattr(source, "class_names", ())
    if len(names) not in (0, count):
        return weights, (), f"the data set has {len(names)} classes"
    return weights, names, "" if names else "the data set names no classes"


def _fills(content, run, weights_only):
    """What biases and slots of new classes begin with, as in a new training."""
    fills = {"bias": run.head.head_initial_bias}
    if weights_only or content["kind"] != "training":
        return fills
    if "optimizer" not in content["state"].get("flags", {}):
        return fills
    optimizer, _ = optimizers.build(
        run.optimizer, 0.1, weight_decay=run.optimizer.weight_decay
    )
    strategy = tf.distribute.get_strategy()
    arrays = {
        name: ShardedRows.create(
            strategy,
            lambda low, high, shape=array["shape"]: np.zeros(
                (high - low, *shape[1:]), np.float32
            ),
            1,
            name,
        )
        for name, array in content["arrays"].items()
        if "/" not in name
    }
    numbers = dict.fromkeys(arrays, 0)
    for name, rows in RowRules(optimizer, arrays, None).slots().items():
        owner = name.partition("/")[0]
        first = float(np.ravel(rows.read(0, 1))[0])
        fills[name] = fills[f"{owner}/{numbers[owner]}"] = first
        numbers[owner] += 1
    return fills


def _name(source, state):
    """A name that says which step it is, as the folder of a run needs it."""
    name = files.name(source)
    if catalog.NAMES.fullmatch(name):
        return name
    return f"step_{state['global_step']:08d}"


def _table(source, target, labels, rows, unnamed):
    old = len(labels.new_labels)
    merged = sum(len(group) for group in labels.groups.values())
    removed = int(np.count_nonzero(labels.new_labels < 0))
    table = [
        ("from", source),
        ("classes", f"{old:,} -> {labels.num_classes:,}"),
        ("removed", f"{removed:,}"),
        ("merged", f"{merged:,} into {len(labels.groups):,}"),
        ("added", f"{labels.added:,}{rows.told}"),
        ("checkpoint", target),
    ]
    return table + ([("names", f"none: {unnamed}")] if unnamed else [])


def _list_row(settings, labels, dominant=None):
    path = settings.classes.new_list
    if not path:
        return []
    known = len(labels.new_labels)

    def new_label(number, label):
        if dominant is not None:
            pictures.check_same(dominant.labels, number, label)
            if dominant.angles[number] > settings.classes.drop_angle:
                return -1
        return int(labels.new_labels[label]) if 0 <= label < known else -1

    count, folder = pictures.write_list(path, settings, new_label)
    return [("new list", f"{path}: {count:,} pictures below {folder}")]


def _next(given, content, labels, run):
    """How a training goes on; a flags.cfg where it can do so in the same folder."""
    start = (
        "start a training with it",
        f"--checkpoint_dir={given.edit_dir} --num_classes={labels.num_classes} "
        "--model_save_dir=<new folder>",
    )
    flags = content["state"].get("flags", {})
    if given.edit_weights_only or content["kind"] != "training" or not flags:
        return [start]
    path = files.join(given.edit_dir, "flags.cfg")
    changed = run.replace(num_classes=labels.num_classes, model_save_dir=given.edit_dir)
    write_flags(changed, path)
    advice = f"python -m plsc_tf.train --flagfile={path} --dataset_dir=<new data>"
    if content["state"].get("step"):
        advice += (
            f"\nit goes on after step {content['state']['step']} of an epoch, whose "
            "order was that of the old data"
        )
    return [start, ("or go on with it", advice)]
