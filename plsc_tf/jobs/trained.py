"""A trained model, loaded from its checkpoint."""

import dataclasses

import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.flags.checkpoints import Checkpoints
from plsc_tf.flags.head import Head
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.parts import NONE, Parts
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.strategy import strategy as make_strategy
from plsc_tf.storage import files, fs_options
from plsc_tf.training import state
from plsc_tf.training.classifier import Classifier

# Options of the network: the checkpoint decides, whatever the flags say.
OF_THE_NETWORK = (
    "model_name",
    "model_options",
    "emb_size",
    "image_shape",
    "dropout",
    "num_classes",
    *(field.name for field in dataclasses.fields(Head)),
)

# Options of the data: the checkpoint decides, unless the flags name them.
OF_THE_DATA = (
    "dataset_name",
    "dataset_dir",
    "train_files",
    "num_sample_per_epoch",
    "labels_offset",
    "min_images_per_class",
    "held_back",
    "preprocessing_name",
    "val_targets",
    "seed",
)


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model and its origin.

    Attributes:
        model: the `Classifier` with the checkpoint's weights.
        checkpoint: path of the checkpoint.
        settings: as requested, except the network, which is the checkpoint's.
        run: settings of the training, as far as the checkpoint has them.
    """

    model: Classifier
    checkpoint: str
    settings: Settings
    run: Settings

    @property
    def run_dir(self) -> str:
        """The folder of the training."""
        return files.parent(self.checkpoint)


def find(storage: Checkpoints) -> str:
    """The path of the checkpoint that the group `checkpoints` mean.

    A run's flags.cfg names the run and also the checkpoint that it started from; it
    means the newest checkpoint of the run, not its start.

    Raises:
        FileNotFoundError: there is none.
    """
    checkpoints = catalog.find_all(storage.model_save_dir)
    if checkpoints:
        _, newest = checkpoints[-1]
        flags = manifest.read(newest)["state"].get("flags", {})
        if storage.checkpoint_dir in ("", flags.get("checkpoint_dir")):
            return newest
    return catalog.resolve(storage.checkpoint_dir or storage.model_save_dir)


def load(
    settings: Settings,
    with_head: bool = False,
    parts: Parts = NONE,
    strategy: tf.distribute.Strategy | None = None,
) -> Trained:
    """Builds the model of a checkpoint and loads its weights.

    Args:
        settings: `checkpoint_dir` or `model_save_dir` name the checkpoint or the run.
        with_head: also load the class weights.
        parts: the `Parts` of the training, if its backbone was given in Python.
        strategy: over the devices to use; None: those of this machine.

    Raises:
        FileNotFoundError: there is no checkpoint.
    """
    fs_options.set_user(settings.checkpoints)
    path = find(settings.checkpoints)
    flags = manifest.read(path)["state"].get("flags", {})
    flags = {name: _hashable(value) for name, value in flags.items()}
    settings = _completed(settings, flags)
    strategy = strategy or make_strategy(settings.performance.num_replicas)
    # Embedding needs no class, however many there are: the smallest head will do.
    classes = strategy.num_replicas_in_sync
    if with_head:
        classes = settings.dataset.num_classes
    model = recipe.build_model(
        settings.replace(num_classes=classes), strategy, backbone=parts.backbone
    )
    state.restore_weights(path, model, with_head=with_head)
    if settings.optimizer.ema_in_use:
        state.restore_averages(path, model, with_head=with_head)
    return Trained(model, path, settings, Settings.from_stored(flags))


def _completed(settings, flags):
    """Takes the network from the run's flags, and the data unless requested."""
    values = settings.as_dict()
    decided = [
        name
        for name in OF_THE_NETWORK
        if name in settings.given and flags.get(name, values[name]) != values[name]
    ]
    if decided:
        logging.info(
            "No effect here: %s (the checkpoint has %s).",
            ", ".join(f"{name}={values[name]}" for name in decided),
            ", ".join(f"{name}={flags[name]}" for name in decided),
        )
    settings = settings.merged(flags, (*OF_THE_DATA, "ema_in_use"))
    network = {name: flags[name] for name in OF_THE_NETWORK if name in flags}
    return settings.replace(**network)


def _hashable(value):
    return tuple(value) if isinstance(value, list) else value
