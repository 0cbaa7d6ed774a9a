"""Decides which options may change when a run is resumed.

Each option belongs to one of three kinds:

* MEANING, the meaning of the run: a new value is refused unless allow_changes names
  the option;
* NUMBERS, options that affect numerical results: a new value is logged and kept in the
  run's history;
* everything else, such as paths, logs and performance, may change silently.
"""

import dataclasses
import datetime

from absl import logging

from plsc_tf.checkpoints import editing, manifest
from plsc_tf.flags.head import FIELDS
from plsc_tf.jobs import trained
from plsc_tf.jobs.builders import heads
from plsc_tf.jobs.builders.data import preprocessing_name
from plsc_tf.options import effects
from plsc_tf.options.other_systems import unknown_option
from plsc_tf.options.settings import Settings, known_options
from plsc_tf.requirements import require

# Options of the loss. A change to one that the loss does not use is ignored.
LOSS = {"loss_type", "interclass_filtering_threshold"}.union(*FIELDS.values())
# Options of the data set. Its files may move, but their content must not change.
DATA = ("dataset_name", "labels_offset", "held_back")
LOCATIONS = ("dataset_dir", "train_files")
MEANING = {*LOSS, *DATA, "scale", "label_smoothing", "preprocessing_name"}
MEANING |= {"image_shape", "data", "teacher", "distill"}
# Groups whose options affect numerical results, except those in SILENT.
NUMBERS = {"dataset", "preprocessing", "model", "head", "training", "learning_rate"}
NUMBERS |= {"optimizer", "precision", "boost", "distillation"}
# Paths, options that affect only speed or the initial weights, which a resume replaces
# with the checkpoint's, and options that are checked elsewhere.
SILENT = {
    *LOCATIONS,
    *("num_classes", "num_parallel_batches", "prefetch_buffer_size", "batch_size"),
    *("num_preprocessing_threads", "datasets_use_caching", "datasets_cache_dir"),
    *("task_type", "stop_at_step", "deterministic", "global_batch_size"),
    *("head_tile_rows", "head_logits_mb", "calc_acc", "on_nonfinite"),
    *("head_initializer", "head_initial_bias"),
    *("dim_reduce_timeout", "snapshot_every_n_steps", "snapshots_per_epoch"),
    *("snapshot_start_epoch", "snapshot_max", "snapshot_dir"),
}


def find(checkpoint, stored, settings, data=None):
    """Returns the options that a resume changes: `{name: [old text, new text]}`.

    The key "data" stands for the content of the data set.

    Args:
        checkpoint: folder of the checkpoint.
        stored: the "state" of the checkpoint's manifest.
        settings: the `Settings` as they will be used.
        data: the description of the training data, see `of_run`; None if it is not open
            yet.

    Raises:
        ValueError: the meaning of the run changes and allow_changes does not permit it.
    """
    flags = stored.get("flags", {})
    allowed, known = _allowed(settings), known_options()
    try:
        old = Settings.from_stored(flags)
    except ValueError as error:  # an older version accepted these options
        logging.warning("Cannot compare the options of %s: %s", checkpoint, error)
        old = settings
    before, now = old.as_dict(), settings.as_dict()
    changes = {
        name: [_text(known[name], one[name]) for one in (before, now)]
        for name in flags
        if name in before and before[name] != now[name] and _is_recorded(known[name])
    }
    if data:
        old_data = stored.get("data", data)
        new_data = _data_text(data, settings.dataset.num_classes)
        if old_data != data:
            changes["data"] = [_data_text(old_data, stored["num_classes"]), new_data]
        if stored.get(editing.EDITED) == data["contents"]:
            changes["data"] = ["the new labels of edited classes", new_data]
    # A checkpoint cannot choose code to run.
    code = {name for name in trained.code_in(before) if before[name] != now[name]}
    asked = [name for name in changes if name in MEANING - allowed]
    refused = [name for name in asked if _means_another(name, old, settings, code)]
    then = ", ".join(f"{name}={changes[name][0]}" for name in refused)
    rule = f"The run in {settings.checkpoints.model_save_dir} was trained with {then}"
    received = {name: changes[name][1] for name in refused}
    require(not refused, rule, _advice(checkpoint, refused), **received)
    return changes


def _is_recorded(item):
    """Returns whether a change of the option is checked and recorded."""
    return item.name in MEANING | {"gradient_dtype", "jit_compile", "tf32"} or (
        item.group in NUMBERS and item.name not in SILENT
    )


def of_run(settings, checkpoint, batches, replicas, workers):
    """Checks and logs what a resume changes in a run.

    Args:
        settings: the `Settings` as they will be used.
        checkpoint: folder of the checkpoint to resume from; None for a new run.
        batches: the training data.
        replicas: number of replicas.
        workers: number of workers.

    Returns:
        a dict to store in the run's checkpoints: "data" describes the training data,
        and "starts" lists when the run was begun and resumed so far, `{"time", "step",
        "replicas", "workers", "changed": {option: [old text, new text]}}`.

    Raises:
        ValueError: see `find`.
    """
    source = batches.source
    data = {"images": source.num_examples, "contents": source.contents()}
    effects.log_unused(settings, {"resumed": checkpoint is not None})
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    start = {"time": now, "step": 0, "replicas": replicas, "workers": workers}
    if checkpoint is None:
        return {"data": data, "starts": [start]}
    stored = manifest.read(checkpoint)["state"]
    changes = find(checkpoint, stored, settings, data)
    for name, (old, new) in changes.items():
        logging.info("changed: %s %s -> %s", name, old, new)
    start |= {"step": stored["global_step"], "changed": changes}
    return {"data": data, "starts": [*stored.get("starts", []), start]}


def _allowed(settings):
    """Returns the names in allow_changes with aliases resolved, and "data"."""
    known = known_options()
    for name in settings.checkpoints.allow_changes:
        if name not in known:
            raise ValueError(f"allow_changes: {unknown_option(name, known)}")
    names = {known[name].name for name in settings.checkpoints.allow_changes}
    return names | {"data"} if names & {*DATA, *LOCATIONS} else names


def _data_text(data, classes):
    # num_classes affects which images mock generates and which images are used.
    return f"{data['images']} images of {classes} classes ({data['contents'][:8]})"


def _text(item, value):
    """Returns the value of an option as text."""
    if value is None and item.name in LOSS:
        return "None (the loss's own)"
    return item.format(value) or "(empty)"


def _means_another(name, old, new, code):
    """Returns whether the old and the new value of an option differ in effect.

    They count as different if that depends on an old option in `code`.
    """
    if name in LOSS and "loss_type" not in code:
        one, other = (heads.make_loss(settings.head) for settings in (old, new))
        if hasattr(one, "gradient") and hasattr(other, "gradient"):
            other = dataclasses.replace(other, gradient=one.gradient)
        return one != other
    if name == "scale":
        return new.head.loss != "softmax"
    if name == "preprocessing_name" and "dataset_name" not in code:
        return preprocessing_name(old) != preprocessing_name(new)
    return True


def _advice(checkpoint, names):
    names = ["dataset_dir" if name == "data" else name for name in names]
    return (
        "Restore the old value; start a new run from these weights: --checkpoint_dir="
        f"{checkpoint} --model_save_dir=<another folder>; or allow the change: "
        f"--allow_changes={','.join(names)}"
    )
