"""Loads a trained model from its checkpoint, to use it or to start training from it."""

import dataclasses
import functools

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import catalog, editing, manifest, reader
from plsc_tf.data import load as data_load
from plsc_tf.flags.head import Head
from plsc_tf.heads import margins
from plsc_tf.heads.heads import ShardedHead
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.parts import NONE, Parts, copy_to_strategy
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.strategy import strategy as make_strategy
from plsc_tf.requirements import listed, prefix_errors, require
from plsc_tf.storage import fs_options
from plsc_tf.training import model_config, state
from plsc_tf.training.classifier import Classifier

# Options of the network. The checkpoint's values override the requested ones.
OF_THE_NETWORK = (
    *("model_name", "model_options", "emb_size", "image_shape", "dropout"),
    *(field.name for field in dataclasses.fields(Head)),
)

# Options of the data. The checkpoint's values apply unless the user sets the option.
OF_THE_DATA = (
    *("dataset_name", "dataset_dir", "train_files", "num_sample_per_epoch"),
    *("labels_offset", "held_back", "preprocessing_name", "val_targets", "seed"),
)
# The log lists at most this many weights by name.
LISTED = 10


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model and its origin.

    Attributes:
        model: the `Classifier` with the checkpoint's weights.
        checkpoint: path of the checkpoint.
        settings: the requested `Settings`, with the network of the checkpoint.
        run: `Settings` of the training, as stored in the checkpoint.
    """

    model: Classifier
    checkpoint: str
    settings: Settings
    run: Settings


def find(settings: Settings) -> str:
    """Returns the path of the checkpoint that the settings' `checkpoints` select.

    A run's flags.cfg names both the run and the checkpoint that it started from. In
    that case, the run's newest checkpoint is selected, not the one it started from,
    unless the command line names that one (see `plsc_tf.options.cli`).

    Raises:
        DamagedCheckpointError: all checkpoints of the run are damaged.
        FileNotFoundError: there is no checkpoint.
    """
    storage = settings.checkpoints
    fs_options.set_user(storage)
    # The default folder may hold another run that started from the checkpoint.
    both = storage.checkpoint_dir and "model_save_dir" in settings.given
    if both and catalog.is_run(storage.model_save_dir):
        path = catalog.resolve(storage.model_save_dir)
        flags = manifest.read(path)["state"].get("flags", {})
        if storage.checkpoint_dir == flags.get("checkpoint_dir"):
            return path
    elif both:  # it may have been renamed
        message = "%s contains no checkpoint: using checkpoint_dir=%s."
        logging.warning(message, storage.model_save_dir, storage.checkpoint_dir)
    return catalog.resolve(storage.checkpoint_dir or storage.model_save_dir)


def load(settings, with_head=False, parts=NONE, strategy=None):
    """Builds the model of a checkpoint and loads its weights; returns a `Trained`.

    Args:
        settings: the `Settings`; `checkpoint_dir` names a checkpoint, or
            `model_save_dir` a run.
        with_head: whether to load the class weights too.
        parts: the `Parts` of the training, if its backbone was given in Python.
        strategy: the strategy over the devices to use; None uses this machine's.

    Raises:
        FileNotFoundError: there is no checkpoint.
    """
    path, content, settings, run = open_checkpoint(settings, parts)
    strategy = strategy or make_strategy(settings.performance.num_replicas)
    reader.check_sizes(path, content, with_head)
    built = settings
    if not (with_head and content["arrays"]):
        # Embeddings do not depend on the head, so the smallest possible one is enough.
        classes = strategy.num_replicas_in_sync
        built = settings.replace(num_classes=classes, sub_centers=1)
    build = functools.partial(reader.build, path, content)
    if parts.backbone is not None or "." in settings.model.model_name:
        build = None  # the user's own code, which may do more than build layers
    model = recipe.build_model(built, strategy, backbone=parts.backbone, build=build)
    state.restore_weights(path, model, with_head=with_head)
    if settings.optimizer.ema_in_use:
        state.restore_averages(path, model, with_head=with_head)
    return Trained(model, path, settings, run)


def open_checkpoint(
    settings: Settings, parts: Parts = NONE
) -> tuple[str, dict, Settings, Settings]:
    """Finds a checkpoint, and completes the settings with those of its training.

    Args:
        settings: the requested `Settings`, see `load`.
        parts: the `Parts` given in Python.

    Returns:
        (the folder of the checkpoint; its manifest; the settings with the training's
        network, and its data unless requested; the settings of the training).

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: the checkpoint's options are not valid, or name Python code that
            neither `settings` nor `parts` name: a checkpoint by itself runs no code.
    """
    path = find(settings)
    content = manifest.read(path)
    stored = content["state"]
    known, values = stored.get("flags", {}), settings.as_dict()
    run = run_settings(f"{path}/{manifest.NAME}: state.flags", known, settings, parts)
    flags = {name: value for name, value in run.as_dict().items() if name in known}
    network = {name: flags[name] for name in OF_THE_NETWORK if name in known}
    network["num_classes"] = stored["num_classes"]
    network["sub_centers"] = stored.get("head", {}).get("sub_centers", 1)
    for name in settings.given & network.keys():
        if values[name] != network[name]:
            message = "No effect here: %s=%s (the checkpoint has %s)."
            logging.info(message, name, values[name], network[name])
    settings = settings.merged(flags, (*OF_THE_DATA, "ema_in_use"))
    return path, content, settings.replace(**network), run


def code_in(values: dict) -> list[str]:
    """Returns the options, of {option: value}, that name modules to import."""
    names = [name for name in ("model_name", "loss_type") if "." in values[name]]
    known = values["dataset_name"].lower() in ("", *data_load.names())
    return names if known else [*names, "dataset_name"]


def run_settings(
    place: str, flags: dict, settings: Settings, parts: Parts = NONE
) -> Settings:
    """Returns the settings of stored options, unless they choose code to run.

    Args:
        place: where they are stored, for messages.
        flags: {option: value}.
        settings: the requested `Settings`, which may name the same code.
        parts: the `Parts` given in Python.

    Raises:
        ValueError: see `open_checkpoint`.
    """
    with prefix_errors(place):
        run = Settings.from_stored(flags)
    values, named = run.as_dict(), settings.as_dict()
    for name in code_in(values):
        given = name == "model_name" and parts.backbone is not None
        rule = f"{place} names code of its own, {name}={values[name]}. If you trust "
        rule += "it, pass it: --flagfile of the run, or load_model(backbone=...)"
        require(values[name] == named[name] or given, rule)
    return run


def load_model(folder, *, backbone=None, head=None, with_head=True):
    """Builds the model of a checkpoint and loads its weights; it is not compiled.

    Example:
        ```python
        model = plsc_tf.load_model("runs/notebook")
        embeddings = model.embed(images)
        ```

    Call it inside `strategy.scope()` to choose the devices; otherwise it uses every GPU
    of this machine, or one CPU device. Their number may differ from the training's. If
    the training averaged its weights, the averages are loaded, unless it ran with
    ema_in_use=false.

    Args:
        folder: a checkpoint, or the folder of a run, whose newest checkpoint is
            loaded.
        backbone: the network, if it has custom layers, which a checkpoint cannot store:
            a Keras model, or a function that makes one.
        head: a new `ShardedHead` or `DenseHead` with the same number of classes, if
            the loss is a custom one. Embeddings do not depend on it.
        with_head: whether to load the class weights.

    Returns:
        The `Classifier`.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: the checkpoint does not hold its network and `backbone` is None, or
            it holds a different network from `backbone`.
    """
    path = catalog.resolve(str(folder))
    content = manifest.read(path)
    stored, with_head = content["state"], with_head and bool(content["arrays"])
    reader.check_sizes(path, content, with_head)
    strategy = tf.distribute.get_strategy()
    if not tf.distribute.has_strategy():
        strategy = make_strategy()
    with strategy.scope():
        network = _network(path, content, backbone)
        head = head or _head(path, content, strategy, with_head)
        model = Classifier(network, head)
    state.restore_weights(path, model, with_head)
    if stored.get("averages_in_use", True):
        state.restore_averages(path, model, with_head)
    state.restore_head_state(model, stored)
    return model


def _network(path, content, backbone):
    stored = content["state"]
    if backbone is not None:
        built = isinstance(backbone, keras.Model)
        return copy_to_strategy(backbone) if built else backbone()
    reason = "custom layers"
    if stored.get("network"):
        try:
            make = functools.partial(model_config.make_network, stored["network"])
            return reader.build(path, content, make)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
    raise ValueError(
        f"Checkpoint {path} does not hold its network ({reason}). Pass the network, or "
        "a function that creates it: plsc_tf.load_model(folder, backbone=...)."
    )


def _head(path, content, strategy, with_head):
    described, classes = content["state"].get("head"), content["state"]["num_classes"]
    if not with_head:  # the smallest head is enough
        classes = strategy.num_replicas_in_sync
        described = described and described | {"sub_centers": 1}
    place, kinds = f"{manifest.NAME}: state.head", (KeyError, TypeError, ValueError)
    with manifest.naming_damage(path, place, kinds):
        head = described and model_config.make_head(classes, described)
    if head:
        return head
    loss = margins.SOFTMAX if "bias" in content["arrays"] else margins.ARCFACE
    logging.warning(
        f"Checkpoint {path} does not hold the loss of its head: using {loss}, which "
        "does not affect embeddings. To evaluate the loss, pass head=ShardedHead(...)."
    )
    return ShardedHead(classes, loss=loss)


def start_from(model: Classifier, settings: Settings, contents: str) -> None:
    """Loads the weights in `checkpoint_dir`; task_type=finetune loads those that fit.

    Args:
        model: the `Classifier`.
        settings: the `Settings`.
        contents: `Source.contents` of the data.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: the checkpoint does not fit the model, or its files are damaged.
    """
    path = catalog.resolve(settings.checkpoints.checkpoint_dir)
    content = manifest.read(path)
    if settings.training.task_type == "finetune":
        _load_matching(path, content, model, settings, contents)
        return
    stored = content["state"]["num_classes"]
    wanted, advice = model.head.num_classes, "set task_type=finetune to start a new one"
    rule = f"The head of checkpoint {path} has {stored} classes: {advice}"
    require(stored == wanted, rule, num_classes=wanted)
    require(content["arrays"], f"Checkpoint {path} holds no head: {advice}")
    state.restore_weights(path, model)
    state.restore_head_state(model, content["state"])
    logging.info("Starting from the weights of %s.", path)


def _load_matching(path, content, model, settings, contents):
    """Loads the backbone's weights that fit, and the head if its classes are equal."""
    loaded, kept, unused = reader.load_matching(path, model.backbone)
    model.trainer.statistics_differ = False
    stored, arrays = content["state"], content["arrays"]
    flags, dataset = stored.get("flags", {}), settings.dataset
    # The head can be reused only if class n of the checkpoint is class n here.
    names, shape = ("dataset_name", "dataset_dir"), model.head.arrays()["weight"].shape
    # An edited checkpoint does not say which data its classes are of.
    default = None if editing.EDITED in stored else contents
    known = [*map(flags.get, names), stored.get("data", {}).get("contents", default)]
    own = [*(getattr(dataset, name) for name in names), contents]
    with_head = known == own and arrays and tuple(arrays["weight"]["shape"]) == shape
    if with_head:
        reader.restore(path, arrays=model.head.arrays())
        state.restore_head_state(model, stored)
    count, head = len(loaded), "that of the checkpoint" if with_head else "new"
    logging.info(
        f"Starting from {path}: {count} of {count + len(kept)} weights of the "
        f"backbone are loaded; the head is {head}."
    )
    reasons = [f"{name}: {why}" for name, why in kept.items()]
    for title, names in (("Not loaded", reasons), ("Unused weights", unused)):
        if names:
            logging.info("%s: %s", title, listed(names, LISTED, "; "))
