"""Exports a checkpoint, or the model at the end of a training run."""

import dataclasses
import functools
import itertools
import shlex

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data.image_limit import check_size
from plsc_tf.evaluation.verification import FOLDS, verify_pairs
from plsc_tf.jobs import origins, trained
from plsc_tf.jobs.builders import data
from plsc_tf.jobs.evaluate import provenance
from plsc_tf.jobs.parts import NONE, Parts
from plsc_tf.options.settings import Settings
from plsc_tf.requirements import require
from plsc_tf.serving import formats, proof
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.serving.export import Extras, export_saved_model
from plsc_tf.storage import files
from plsc_tf.training.classifier import Classifier

# Images on which the export is compared with the network, and which calibrate the
# quality: its standard error is 0.016 at most.
_COMPARED, _CALIBRATED = 32, 1000


def check(settings: Settings) -> None:
    """Checks before a training run that the export at its end can succeed.

    Raises:
        ValueError: export_classes exceeds num_classes.
        ImportError: a format needs an extra that is not installed.
    """
    options, num_classes = settings.export, settings.dataset.num_classes
    if not options.export_at_end:
        return
    # Calibration uses training images, which a training run always has.
    formats.check_formats(options.export_formats, calibration=options.export_formats)
    rule = f"export_classes must be at most num_classes={num_classes}"
    classes = options.export_classes
    require(classes <= num_classes, rule, export_classes=classes)


def export_checkpoint(
    settings: Settings,
    parts: Parts = NONE,
    strategy: tf.distribute.Strategy | None = None,
) -> list[tuple[str, str]]:
    """Exports a trained model; returns the rows of a table.

    Args:
        settings: the `Settings`.
        parts: see `trained.load`.
        strategy: see `trained.load`.

    Raises:
        FileNotFoundError: the checkpoint or the card does not exist.
        ValueError: the card belongs to another checkpoint.
        RuntimeError: the exported model differs from the network by more than allowed;
            nothing is published.
    """
    options = settings.export
    card = EvaluationCard.read(options.card) if options.card else None
    loaded = trained.load(settings, options.export_classes > 0, parts, strategy)
    if card:
        card.check_model(provenance.of_model(loaded))
        exported, evaluated = (one.as_dict() for one in (loaded.settings, loaded.run))
        evaluated |= dict(card.content.get("options", {}))
        for name in ("ema_in_use", "preprocessing_name"):
            rule = f"The model in {card.path} has {name}={evaluated[name]}"
            same = evaluated[name] == exported[name]
            require(same, rule, "Use the same", **{name: exported[name]})
    settings = loaded.settings.replace(model_save_dir=files.parent(loaded.checkpoint))
    # Default verification sets may be missing here; sets that the user named may not.
    required, load = "val_targets" in settings.given, data.load_pairs
    pairs = load(settings) if required else _read(load, settings) or {}
    target = _export(settings, loaded.model, loaded.checkpoint, pairs, card)
    parent = shlex.quote(files.parent(target))
    return [
        ("checkpoint", loaded.checkpoint),
        *proof.table(target),
        ("SavedModel", target),
        ("serve it with", f"tensorflow_model_server --model_base_path={parent}"),
    ]


def export_at_end(
    settings: Settings, model: Classifier, checkpoint: str, pairs: dict
) -> str:
    """Exports the model after its training; returns the version folder.

    Args:
        settings: the `Settings`.
        model: the `Classifier`.
        checkpoint: path of the checkpoint with the same weights.
        pairs: `{name: Pairs}` for comparing the export with the network.
    """
    if settings.export.export_classes and model.trainer.group.size > 1:
        # Gathering the class weights needs all workers; only the chief exports.
        logging.warning(
            "The export lacks the signature `classify`, because several workers share "
            "the classes. To add it, run python -m plsc_tf.export --flagfile=%s",
            files.join(settings.checkpoints.model_save_dir, "flags.cfg"),
        )
        settings = settings.replace(export_classes=0)
    return _export(settings, model, checkpoint, pairs)


def _export(settings, model, checkpoint, pairs, card=None):
    options, frame = settings.export, data.framing(settings)
    made_of = origins.of_checkpoint(checkpoint) if checkpoint else []
    facts = origins.checked_facts(settings, made_of)
    save_dir = settings.checkpoints.model_save_dir
    export_dir = options.export_dir or files.join(save_dir, "export")
    files.prepare(export_dir)
    int8 = "tflite_int8" in options.export_formats
    images = _images(settings, pairs)
    extras = Extras(
        formats=options.export_formats,
        calibration=_calibration(settings) if int8 else None,
        card=card,
        pictures=_spread(images, _COMPARED),
        validation=images,
        accuracy=_accuracy(pairs, settings, model.image_size),
        accuracy_loss=options.accuracy_loss,
    )
    return export_saved_model(
        model,
        export_dir,
        image_size=model.image_size,
        normalize=options.export_normalized,
        model_card={
            "model_name": settings.model.model_name,
            "model_options": settings.model.model_options,
            "dataset_name": settings.dataset.dataset_name,
            "checkpoint": checkpoint,
            "preprocessing": frame.name,
            **facts,
        },
        prepare=frame.evaluate,
        classes=options.export_classes,
        extras=extras,
    )


def _read(load, settings):
    """Returns load(settings); logs a warning and returns None if it fails."""
    try:
        return load(settings)
    except (OSError, ValueError) as error:
        logging.warning("The export is checked only on random images: %s", error)
    return None


def _images(settings, pairs):
    """Returns encoded images from the first verification set, or the test split.

    Only a verification set gives enough of them to calibrate the quality.
    """
    if pairs:
        images = _spread(next(iter(pairs.values())).images, _CALIBRATED)
    else:
        test = _read(data.load_test, settings)
        records = itertools.islice(test.source.records(), _COMPARED) if test else ()
        images = [record.image for record in records]
    encoded = [
        image if isinstance(image, bytes) else tf.io.encode_png(image).numpy()
        for image in images
    ]
    for image in encoded:
        check_size(image, settings.server.max_megapixels)
    return tuple(encoded)


def _spread(images, count):
    """Returns at most `count` of the images, evenly spread."""
    rows = np.linspace(0, len(images) - 1, min(count, len(images)), dtype=int)
    return tuple(images[row] for row in rows)


def _accuracy(pairs, settings, image_size):
    """Returns `Extras.accuracy`, which verifies any embedding function, or None."""
    count = settings.export.proof_pairs
    if not (pairs and count):
        return None
    chosen = {name: _thinned(one, max(count, FOLDS)) for name, one in pairs.items()}
    size = settings.evaluation.test_batch_size
    verify = functools.partial(verify_pairs, batch_size=size, image_size=image_size)

    def accuracy(embed):
        return {name: verify(embed, one).accuracy for name, one in chosen.items()}

    return accuracy


def _thinned(pairs, count):
    """Returns at most `count` pairs, chosen at random, in order."""
    rows = np.sort(np.random.default_rng(0).permutation(len(pairs))[:count])
    columns = {name: getattr(pairs, name)[rows] for name in ("left", "right", "same")}
    return dataclasses.replace(pairs, **columns)


def _calibration(settings):
    """Returns uint8 training images, framed as in evaluation: `[n, height, width, 3]`.

    Raises:
        ValueError: the training data cannot be read.
    """
    try:
        source = data.open_source(settings)
    except (OSError, ValueError) as error:
        raise ValueError(
            "tflite_int8 needs training images for calibration. Set --dataset_name, "
            f"--dataset_dir or --train_files to find them. {error}"
        ) from error
    count = settings.export.calibration_images
    batches = data.load_batches(settings, count, "test", source, shuffle=True)
    return np.asarray(next(iter(batches))[0])
