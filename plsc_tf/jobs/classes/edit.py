"""Writes a checkpoint with edited classes."""

import functools
import re

import keras
import numpy as np

from plsc_tf.checkpoints import catalog, editing
from plsc_tf.checkpoints.labels_map import LabelsMap
from plsc_tf.checkpoints.rows import StoredRows, one_center
from plsc_tf.data.checks import report
from plsc_tf.jobs import origins, trained
from plsc_tf.jobs.builders import optimizers
from plsc_tf.jobs.classes.rows import collect, dominant_table, find_dominant
from plsc_tf.jobs.training_data import TrainingData
from plsc_tf.requirements import prefix_errors, require
from plsc_tf.storage import files, outputs
from plsc_tf.storage.writer_lock import WriterLock

MAP = "labels_map.txt"
_LABELS = re.compile(r"[\d,+\s]+")


def edit(settings):
    """Edits the classes of the checkpoint that the settings name.

    Args:
        settings: the `Settings`; `classes` specifies the edit, `checkpoints` names the
            checkpoint, and `dataset` names the training data.

    Returns:
        Table rows.

    Raises:
        FileExistsError: an output folder or file already exists.
        FolderInUseError: another process is writing to edit_dir.
        FileNotFoundError: the checkpoint, a list or a folder does not exist.
        ValueError: a class is unknown, rows have the wrong size, or the checkpoint's
            state cannot be edited. Nothing is written.
    """
    options = settings.classes
    source, content, settings, run = trained.open_checkpoint(settings)
    outputs.require_absent(options.edit_dir)
    editing.check_centers(source, content, options.drop_sub_centers)
    averaged = settings.optimizer.ema_in_use and "averages" in content["state"]
    rule = f"The averages of the weights in {source} would be lost"
    advice = "Leave out edit_weights_only, or set --ema_in_use=false to do without them"
    require(not (options.edit_weights_only and averaged), rule, advice)
    training_data = TrainingData(settings, content["state"])
    if options.new_list or options.drop_sub_centers:
        training_data.require_labels(strict=True)
    report.check_output(options.new_list, "new_list", training_data.open_listing)
    old = content["state"]["num_classes"]
    removed = [k for group in read_groups(options.remove_classes) for k in group]
    merged = read_groups(options.merge_classes)
    stored, dominant = StoredRows(source, content["arrays"]["weight"]), None
    if options.drop_sub_centers:
        dominant = find_dominant(settings, source, stored, training_data)
        stored = one_center(stored, dominant.centers)
        run = run.replace(sub_centers=1)
    make_labels = functools.partial(LabelsMap, old, removed, merged)
    read, added_names, labels = collect(settings, run, source, stored, make_labels)
    names, unnamed = training_data.class_names()
    name = files.name(source)
    if not catalog.NAMES.fullmatch(name):
        name = f"step_{content['state']['global_step']:08d}"
    target = files.join(options.edit_dir, name)
    changes = editing.Edit(
        labels=labels,
        added=read,
        fills=_fills(content, run, options.edit_weights_only) if labels.added else {},
        dominant=dominant and dominant.centers,
        state={"origins": origins.of_edit(source, options.class_images)},
        flags={"model_save_dir": options.edit_dir, "sub_centers": run.head.sub_centers},
    )
    labels_map = files.join(options.edit_dir, MAP)
    with WriterLock("Give another edit_dir.") as lock:
        lock.acquire(options.edit_dir)
        # Another command may have written its checkpoint meanwhile.
        outputs.require_absent(labels_map)
        editing.edit(source, target, changes, weights_only=options.edit_weights_only)
        labels.write(labels_map, names, added_names)
    table = _table(source, target, labels, unnamed) + [("labels map", labels_map)]
    if dominant is not None:
        table += dominant_table(dominant)
    if options.new_list:
        table.append(_write_list(options.new_list, training_data, labels, dominant))
    return table + _next_steps(options, content, labels)


def read_groups(text):
    """Reads groups of labels from a string or a file.

    "3,17" means two groups of one label, "3+17,5+9" two groups of two labels. Any other
    text is the path of a file with one group per line, its labels separated by spaces.

    Raises:
        FileNotFoundError: the text is neither labels nor an existing file.
        ValueError: a line of the file is invalid.
    """
    lines = text.split(",")
    if text.strip() and not _LABELS.fullmatch(text):
        rule = "remove_classes and merge_classes must be labels such as 3,17 or 3+17, "
        rule += f"or an existing file with labels. Received: {text!r}"
        require(files.exists(text), rule, raises=FileNotFoundError)
        lines = files.read(text).decode().split("\n")  # as editors show them
    groups = []
    for number, line in enumerate(lines, 1):
        line = line.partition("#")[0]
        rule = f"{text}, line {number}: expected labels separated by spaces"
        with prefix_errors(rule, OverflowError, advice=f"Received: {line!r}"):
            # The head's labels have 64 bits.
            group = [int(np.int64(one)) for one in line.replace("+", " ").split()]
        if group:
            groups.append(group)
    return groups


def _fills(content, run, weights_only):
    """Returns the initial values of biases and optimizer slots for new classes."""
    fills = {"bias": run.head.head_initial_bias}
    resumable = content["kind"] == "training" and not weights_only
    if not resumable or "optimizer" not in content["state"].get("flags", {}):
        return fills
    optimizer, _ = optimizers.build(run.optimizer, 0.1)
    arrays = content["arrays"]
    own = [name for name in arrays if "/" not in name]
    rows = [keras.Variable(np.zeros((1, *arrays[n]["shape"][1:])), name=n) for n in own]
    optimizer.build(rows)
    first = {slot.name: np.ravel(slot.numpy())[0] for slot in optimizer.variables}
    names = {name: name.replace("/", "_") for name in arrays}
    return fills | {n: float(first[s]) for n, s in names.items() if s in first}


def _table(source, target, labels, unnamed):
    old = len(labels.new_labels)
    merged = sum(len(group) for group in labels.groups.values())
    table = [
        ("source", source),
        ("classes", f"{old:,} -> {labels.num_classes:,}"),
        ("removed", f"{np.count_nonzero(labels.new_labels < 0):,}"),
        ("merged", f"{merged:,} into {len(labels.groups):,}"),
        ("added", f"{labels.added:,}"),
        ("checkpoint", target),
    ]
    return table + ([("names", f"none: {unnamed}")] if unnamed else [])


def _write_list(path, training_data, labels, dominant):
    known = len(labels.new_labels)

    def new_label(number, label):
        if dominant is not None and dominant.far[number]:
            return -1
        return int(labels.new_labels[label]) if 0 <= label < known else -1

    return training_data.write_list(path, new_label)


def _next_steps(options, content, labels):
    """Returns advice on further training."""
    place, number = options.edit_dir, f"--num_classes={labels.num_classes}"
    start = f"--checkpoint_dir={place} {number} --model_save_dir=<new folder>"
    by_command = content["kind"] == "training" and content["state"].get("flags")
    if options.edit_weights_only or not by_command:
        return [("start a new training", start)]
    # No flags.cfg is written: a checkpoint must choose neither code nor places.
    resume = f"--flagfile=<flags.cfg of the training> --model_save_dir={place} {number}"
    resume += " --sub_centers=1" * options.drop_sub_centers
    resume += " --dataset_dir=<new data>"
    return [("start a new training", start), ("or resume", resume)]
