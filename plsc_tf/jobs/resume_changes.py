"""Options that a resumed run may change: its meaning only on request, numbers logged.

Each option is of one kind, in every group declared here once:

* the meaning of the run: another value is refused, unless allow_changes names it;
* numbers: another value is logged and kept in the run's history;
* everything else, such as paths, logs and performance, may change silently.
"""

import dataclasses

from absl import logging

from plsc_tf.checkpoints import manifest
from plsc_tf.data import load as data_load
from plsc_tf.jobs.builders import heads
from plsc_tf.options import effects
from plsc_tf.options.other_systems import unknown_option
from plsc_tf.options.settings import Settings, known_options

# Options of the loss; those that a loss does not use do not count.
LOSS = (
    "loss_type",
    "margin",
    "margin1",
    "margin3",
    "adaface_h",
    "adaface_t_alpha",
    "magface_norms",
    "magface_margins",
    "magface_lambda_g",
    "interclass_filtering_threshold",
)
# The data set. The place of its files does not matter, their content does.
DATA = ("dataset_name", "labels_offset", "min_images_per_class", "held_back")
PLACES = ("dataset_dir", "train_files")
MEANING = {*LOSS, "scale", "label_smoothing", *DATA} | {
    "preprocessing_name",
    "image_shape",
}
NUMBERS_OF_GROUPS = (
    "dataset",
    "preprocessing",
    "model",
    "head",
    "training",
    "learning_rate",
    "optimizer",
    "precision",
    "boost",
)
NUMBERS = ("gradient_dtype",)
# Of those groups: places, speed, and options that another check refuses.
SILENT = (
    *PLACES,
    "num_classes",
    "num_parallel_batches",
    "prefetch_buffer_size",
    "num_preprocessing_threads",
    "datasets_use_caching",
    "datasets_cache_dir",
    "task_type",
    "stop_at_step",
    "deterministic",
    "batch_size",
    "global_batch_size",
    "head_tile_rows",
    "head_logits_mb",
    "calc_acc",
    "on_nonfinite",
    "max_nonfinite",
    "dim_reduce_timeout",
    "snapshot_every_n_steps",
    "snapshots_per_epoch",
    "snapshot_start_epoch",
    "snapshot_max",
    "snapshot_dir",
)
# They make the initial weights, which a resume replaces by those of its checkpoint.
FIRST_WEIGHTS = ("head_initializer", "head_initial_deviation", "head_initial_bias")


def kind(item):
    """Returns "meaning", "numbers" or "" of an `Option`."""
    if item.name in MEANING:
        return "meaning"
    of_group = item.group in NUMBERS_OF_GROUPS and item.name not in SILENT
    return "numbers" if of_group or item.name in NUMBERS else ""


def find(checkpoint, settings):
    """The options that a resume changes: `{name: [old text, new text]}`.

    Args:
        checkpoint: its folder.
        settings: the `Settings` as they will be used.

    Raises:
        ValueError: the meaning of the run changes, and allow_changes does not say so.
    """
    flags = manifest.read(checkpoint)["state"].get("flags", {})
    allowed = _allowed(settings)
    try:
        old = Settings.from_stored(flags)
    except ValueError as error:  # an older version of the library took it
        logging.warning("Cannot compare the options of %s: %s", checkpoint, error)
        return {}
    refused, changes = [], {}
    before, now = old.as_dict(), settings.as_dict()
    for name in flags:
        if name not in before or before[name] == now[name]:
            continue
        item = known_options()[name]
        if kind(item):
            changes[name] = [_text(item, one[name]) for one in (before, now)]
        if kind(item) == "meaning" and _means_another(name, old, settings):
            refused.append(name)
    refused = [name for name in refused if name not in allowed]
    if refused:
        save_dir = settings.checkpoints.model_save_dir
        _refuse(f"The run in {save_dir}", checkpoint, refused, changes)
    return changes


def of_run(settings, checkpoint, batches):
    """What a run changes as it is resumed, checked and logged, and what it keeps of it.

    Args:
        settings: the `Settings` as they will be used.
        checkpoint: folder of the checkpoint to resume from; None: a new run.
        batches: the training data.

    Returns:
        (`{name: [old text, new text]}`, what its checkpoints hold: "data", and
        "changes" of all resumes so far).

    Raises:
        ValueError: as `find` and `check_data`.
    """
    data = describe_data(batches)
    effects.tell(settings, {"resumed": checkpoint is not None})
    if checkpoint is None:
        return {}, {"data": data, "changes": []}
    check_data(checkpoint, data, settings)
    changes = find(checkpoint, settings)
    idle = [name for name in FIRST_WEIGHTS if changes.pop(name, None)]
    if idle:
        logging.info(
            "No effect on a resume: %s; the head goes on from the weights in %s.",
            ", ".join(idle),
            checkpoint,
        )
    for name, (old, new) in changes.items():
        logging.info("changed: %s %s -> %s", name, old, new)
    stored = manifest.read(checkpoint)["state"]
    past = stored.get("changes", [])
    now = [{"step": stored["global_step"], "changed": changes}] if changes else []
    return changes, {"data": data, "changes": [*past, *now]}


def describe_data(batches):
    """The description of the data in a checkpoint, as a dict."""
    source = batches.source
    return {"images": source.num_examples, "contents": source.contents()}


def check_data(checkpoint, data, settings):
    """Checks that a resumed run trains on the same data.

    Args:
        checkpoint: its folder.
        data: of `describe_data`.
        settings: the `Settings`.

    Raises:
        ValueError: they differ, and allow_changes names none of their options.
    """
    stored = manifest.read(checkpoint)["state"]
    before = stored.get("data", data)
    if before == data:
        return
    texts = [
        f"{one['images']} images ({one['contents'][:8]})" for one in (before, data)
    ]
    if _allowed(settings) & {*DATA, *PLACES}:
        logging.info("changed: data %s -> %s", *texts)
        return
    # The number of classes decides what mock draws and which images are used.
    classes = [stored.get("num_classes"), settings.dataset.num_classes]
    if classes[0] != classes[1]:
        texts = [
            f"{text}, num_classes={n}" for text, n in zip(texts, classes, strict=True)
        ]
    raise ValueError(
        f"The run in {settings.checkpoints.model_save_dir} was trained on other data: "
        f"{texts[0]}. Received: {texts[1]}, with "
        f"dataset_name={settings.dataset.dataset_name}, "
        f"dataset_dir={settings.dataset.dataset_dir}. {_advice(checkpoint)}, or allow "
        "the change: --allow_changes=dataset_dir."
    )


def _allowed(settings):
    """The names in allow_changes, aliases resolved."""
    known = known_options()
    for name in settings.checkpoints.allow_changes:
        if name not in known:
            raise ValueError(f"allow_changes: {unknown_option(name, known)}")
    return {known[name].name for name in settings.checkpoints.allow_changes}


def _text(item, value):
    """A value of an option in words."""
    if value is None and item.name in LOSS:
        return "None (the loss's own)"
    return item.format(value) or "(empty)"


def _means_another(name, old, new):
    """Whether two values of an option differ in what they do."""
    if name in LOSS:
        losses = [heads.make_loss(one.head) for one in (old, new)]
        return _plain(losses[0]) != _plain(losses[1])
    if name == "scale":
        return new.head.loss != "softmax"
    if name == "preprocessing_name":
        kinds = [_preprocessing(one) for one in (old, new)]
        return kinds[0] != kinds[1]
    return True


def _plain(loss):
    """A loss, whatever its gradient."""
    if not hasattr(loss, "gradient"):
        return loss
    return dataclasses.replace(loss, gradient="exact")


def _preprocessing(settings):
    """The preprocessing by name, that of the data set where none is set."""
    name = settings.preprocessing.preprocessing_name
    if name is not None:
        return name
    return data_load.suitable_preprocessing(
        data_load.find(settings.dataset.dataset_name)
    )


def _advice(checkpoint):
    return (
        "Resume with what it had, or start a new run from these weights: "
        f"--checkpoint_dir={checkpoint} --model_save_dir=<another folder>"
    )


def _refuse(run, checkpoint, names, changes):
    old = ", ".join(f"{name}={changes[name][0]}" for name in names)
    new = ", ".join(f"{name}={changes[name][1]}" for name in names)
    raise ValueError(
        f"{run} was trained with {old}. Received: {new}. {_advice(checkpoint)}, or "
        f"allow the change: --allow_changes={','.join(names)}."
    )
