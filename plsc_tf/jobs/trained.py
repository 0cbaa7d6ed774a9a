"""A trained model again, from its checkpoint: to evaluate it, to export it."""

import dataclasses
import shlex

from absl import logging

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.flags.head import Head
from plsc_tf.jobs import exporting, results
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.evaluate import provenance
from plsc_tf.jobs.parts import NONE
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.strategy import strategy as make_strategy
from plsc_tf.serving import proof
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.storage import files, fs_options
from plsc_tf.training import state
from plsc_tf.training.classifier import Classifier

# What a checkpoint decides about the network, whatever the flags say.
OF_THE_NETWORK = (
    "model_name",
    "model_options",
    "emb_size",
    "image_shape",
    "dropout",
    "num_classes",
    *(field.name for field in dataclasses.fields(Head)),
)

# What a checkpoint says about the data, unless the flags say something.
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
    """A trained model, and where it comes from.

    Attributes:
        model: the `Classifier` with the checkpoint's weights.
        checkpoint: path of the checkpoint.
        settings: as asked for, but for the network, which is the checkpoint's.
        run: settings of the training, as far as the checkpoint tells them.
    """

    model: Classifier
    checkpoint: str
    settings: Settings
    run: Settings

    @property
    def run_dir(self):
        """The folder of the training."""
        return files.parent(self.checkpoint)


def find(storage):
    """The checkpoint that the `Storage` settings mean.

    A run's flags.cfg names the run and also what it started from; the newest
    checkpoint of the run is meant then, not its start.

    Raises:
        FileNotFoundError: there is none.
    """
    own = catalog.find_all(storage.model_save_dir)
    if own:
        flags = manifest.read(own[-1][1])["state"].get("flags", {})
        if storage.checkpoint_dir in ("", flags.get("checkpoint_dir")):
            return own[-1][1]
    return catalog.resolve(storage.checkpoint_dir or storage.model_save_dir)


def load(settings, with_head=False, parts=NONE, strategy=None):
    """Builds the model of a checkpoint and loads its weights.

    Args:
        settings: `checkpoint_dir` or `model_save_dir` name the checkpoint or the run.
        with_head: also load the class weights.
        parts: the `Parts` of the training, where its backbone was given in Python.
        strategy: over the devices to use; None: those of this machine.

    Returns:
        a `Trained`.

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
    """Takes the network from the run's flags, and the rest where nothing is asked."""
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


def export(settings, parts=NONE, strategy=None):
    """Exports a trained model; returns the rows of a table.

    Args:
        settings: the `Settings`.
        parts: see `load`.
        strategy: see `load`.

    Raises:
        FileNotFoundError: there is no checkpoint, or no card.
        ValueError: the card is of another checkpoint.
        RuntimeError: the proof does not hold; nothing is published.
    """
    card = settings.export.card and EvaluationCard.read(settings.export.card)
    found = load(settings, settings.export.export_classes > 0, parts, strategy)
    if card:
        told = provenance.of_model(found)
        card.check_weights(told["weights_sha256"], found.checkpoint)
    earlier = results.read(found.run_dir)
    figures = {}
    of = earlier.get("checkpoint_dir")
    # The averages and the weights themselves have each their own figures.
    same_weights = (
        found.settings.optimizer.ema_in_use == found.run.optimizer.ema_in_use
        or not found.run.optimizer.ema_decay
    )
    if of and files.name(of) == files.name(found.checkpoint) and same_weights:
        figures = earlier["verification"]
    target = settings.export.export_dir or files.join(found.run_dir, "export")
    targets = found.settings.evaluation.val_targets
    exported = exporting.export(
        found.settings.replace(export_dir=target),
        found.model,
        found.checkpoint,
        figures,
        card=card or None,
        need_pairs=targets != found.run.evaluation.val_targets,
    )
    parent = shlex.quote(files.parent(exported))
    return [
        ("checkpoint", found.checkpoint),
        *proof.table(exported),
        ("SavedModel", exported),
        ("serve it with", f"tensorflow_model_server --model_base_path={parent}"),
    ]
