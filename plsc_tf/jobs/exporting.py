"""From a model and its settings to an export: what goes into it, how it is proved."""

import dataclasses
import io
import itertools

import numpy as np
from absl import logging
from PIL import Image

from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.evaluation.verification import FOLDS, verify_pairs
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.builders.preprocessing import framing
from plsc_tf.serving.artefacts import check_formats
from plsc_tf.serving.export import Extras, export_saved_model
from plsc_tf.serving.proof import Bounds
from plsc_tf.storage import files

# Written by plsc_tf.classes beside a checkpoint: old label, new label, name.
LABELS_MAP = "labels_map.txt"


def check(settings):
    """Finds before a training what would stop the export at its end.

    Raises:
        ValueError: more classes are asked for than there are, or a card is given.
        ImportError: a format needs an extra that is not installed.
    """
    given, num_classes = settings.export, settings.dataset.num_classes
    if not given.export_at_end:
        return
    # The pictures to calibrate on are those that are trained on.
    check_formats(given.export_formats, calibration=given.export_formats)
    if given.export_classes > num_classes:
        raise ValueError(
            f"export_classes must be at most num_classes={num_classes}. Received: "
            f"export_classes={given.export_classes}."
        )
    if given.card:
        raise ValueError(
            "A card is of a checkpoint that is there already: give it to python -m "
            f"plsc_tf.export. Received: card={given.card!r}."
        )


def export(
    settings, model, checkpoint, figures, *, card=None, pairs=None, need_pairs=False
):
    """Exports the model where the settings say; returns the version folder.

    Args:
        settings: the `Settings`, of the run but for what the export is asked for.
        model: the `Classifier`; for `export_classes` with its class weights.
        checkpoint: path of the checkpoint that the model stands at.
        figures: `results.verification_figures`, for the model card.
        card: an `EvaluationCard` of this checkpoint, or None.
        pairs: `{name: Pairs}`, the verification sets; None reads those of the settings.
        need_pairs: whether verification sets that cannot be read are an error; else a
            log line, and the proof is about noise.

    Raises:
        ValueError, OSError, RuntimeError, ImportError: see `export_saved_model`.
    """
    given, frame = settings.export, framing(settings)
    export_dir = given.export_dir or files.join(
        settings.checkpoints.model_save_dir, "export"
    )
    files.prepare(export_dir)
    if pairs is None:
        pairs = _pairs(settings, need_pairs)
    calibration = None
    if "tflite_int8" in given.export_formats:
        calibration = _calibration(settings, frame)
    extras = Extras(
        formats=given.export_formats,
        calibration=calibration,
        card=card,
        class_names=_class_names(settings, checkpoint),
        pictures=_pictures(settings, pairs, given.proof_images),
        accuracy=_accuracy(pairs, settings, model.image_size),
        bounds=Bounds(given.float16_cosine, given.int8_cosine, given.accuracy_loss),
    )
    return export_saved_model(
        model,
        export_dir,
        image_size=model.image_size,
        normalize=given.export_normalized,
        model_card={
            "model_name": settings.model.model_name,
            "dataset_name": settings.dataset.dataset_name,
            "checkpoint": checkpoint,
            "verification": figures,
            "preprocessing": frame.name,
        },
        prepare=frame.evaluate,
        classes=given.export_classes,
        extras=extras,
    )


def _pairs(settings, needed):
    given = settings.export
    if not (given.proof_images or given.proof_pairs):
        return {}
    if needed:
        return recipe.load_pairs(settings)
    return _read(recipe.load_pairs, settings, "verification sets") or {}


def _pictures(settings, pairs, count):
    """Encoded pictures of the first set, spread over it, or of the test split."""
    if not count:
        return ()
    if not pairs:
        test = _read(recipe.load_test, settings, "test split")
        records = itertools.islice(test.source.records(), count) if test else ()
        return tuple(_encoded(record.image) for record in records)
    images = next(iter(pairs.values())).images
    rows = np.unique(np.linspace(0, len(images) - 1, count).astype(int))
    return tuple(_encoded(images[row]) for row in rows)


def _read(load, settings, what):
    """What a function loads for the settings; None, and a warning, where it cannot."""
    try:
        return load(settings)
    except (OSError, ValueError) as error:
        logging.warning(
            "The run's %s cannot be read, so the export is compared with the network "
            "on noise only: %s",
            what,
            error,
        )
    return None


def _encoded(image):
    if isinstance(image, bytes):
        return image
    file = io.BytesIO()
    Image.fromarray(np.asarray(image).squeeze()).save(file, "PNG")
    return file.getvalue()


def _accuracy(pairs, settings, image_size):
    """What `Extras.accuracy` is: verification by any function that embeds."""
    most = settings.export.proof_pairs
    if not (pairs and most):
        return None
    chosen = {name: _some(one, max(most, FOLDS)) for name, one in pairs.items()}

    def accuracy(embed):
        return {
            name: verify_pairs(
                embed,
                one,
                batch_size=settings.evaluation.test_batch_size,
                image_size=image_size,
            ).accuracy
            for name, one in chosen.items()
        }

    return accuracy


def _some(pairs, most):
    """Half of the pairs of each kind, as far as there are, in their order."""
    if len(pairs) <= most:
        return pairs
    rows = []
    for kind in (True, False):
        own = np.flatnonzero(pairs.same == kind)
        spread = np.linspace(0, len(own) - 1, min(len(own), most // 2)).astype(int)
        rows.append(own[spread])
    rows = np.sort(np.concatenate(rows))
    return dataclasses.replace(
        pairs, left=pairs.left[rows], right=pairs.right[rows], same=pairs.same[rows]
    )


def _calibration(settings, frame):
    """Training pictures, framed as for evaluation: uint8 [n, height, width, 3]."""
    try:
        source = recipe.open_source(settings)
    except (OSError, ValueError) as error:
        raise ValueError(
            "tflite_int8 is calibrated on training pictures. --dataset_name, "
            f"--dataset_dir and --train_files say where there are some. {error}"
        ) from error
    options = PipelineOptions(
        image_size=frame.image_size,
        preprocessing=frame.name,
        training=False,
        seed=settings.training.seed,
    )
    batches = Batches(source, settings.export.calibration_images, options=options)
    images, *_ = next(batches.epoch(0).as_numpy_iterator())
    return np.asarray(images)


def _class_names(settings, checkpoint):
    """The names of the classes, by the labels map of the checkpoint or the data."""
    if not settings.export.export_classes:
        return ()
    path = files.join(files.parent(checkpoint), LABELS_MAP) if checkpoint else ""
    if path and files.exists(path):
        return _names_in(files.read(path).decode(errors="replace"))
    try:
        source = recipe.open_source(settings)
    except (OSError, ValueError) as error:
        logging.info("The classes get no names, the data cannot be read: %s", error)
        return ()
    return tuple(getattr(source, "class_names", ()))


def _names_in(labels_map):
    """Names by new label; of merged classes the first."""
    names = {}
    for line in labels_map.splitlines():
        _, label, name = line.split("\t")
        if label != "-":
            names.setdefault(int(label), name)
    if not set(names.values()) - {"-"}:
        return ()
    return tuple(names.get(label, "-") for label in range(max(names) + 1))
