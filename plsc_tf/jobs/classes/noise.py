"""From the options to a report of labels that look wrong."""

import dataclasses
import tempfile

import numpy as np
from absl import logging

from plsc_tf.checkpoints import editing, manifest
from plsc_tf.checkpoints.rows import StoredRows
from plsc_tf.data.checks import report as check_report
from plsc_tf.evaluation import label_noise, two_in_one
from plsc_tf.evaluation.embedding_store import (
    EmbeddingStore,
    MeanCenters,
    WeightCenters,
)
from plsc_tf.jobs import trained
from plsc_tf.jobs.classes import images, noise_report, training_settings
from plsc_tf.options import effects
from plsc_tf.progress import Progress
from plsc_tf.storage import files

# Similarity of the centers of one identity, by kind of center.
ALIKE = {"embeddings": 0.97, "weights": 0.7}


@dataclasses.dataclass(frozen=True)
class NoiseFindings:
    """The labels that look wrong.

    Attributes:
        store: the `EmbeddingStore`.
        pairs: `Pairs` of classes, the most alike first.
        alike: those of them that seem to be one identity.
        nearest: `Nearest` of every image.
        mislabelled: bool [images].
        scores: float64, of all classes that could be judged, the most unusual first.
        splits: list of the first ones' `Split`s.
        thresholds: `{"pair", "margin", "split"}`.
    """

    store: EmbeddingStore
    pairs: label_noise.Pairs
    alike: label_noise.Pairs
    nearest: label_noise.Nearest
    mislabelled: np.ndarray
    splits: list
    scores: np.ndarray
    thresholds: dict


def report(settings):
    """Embeds the training images and reports labels that look wrong.

    Args:
        settings: the `Settings`; `classes` says what to write, `checkpoints` names the
            checkpoint, `dataset` the training data.

    Returns:
        the rows of a table.

    Raises:
        FileExistsError: new_list exists.
        FileNotFoundError: there is no checkpoint, data set or folder for the report.
        ValueError: labels that the checkpoint does not have, or a new_list of a data
            set whose images are not files.
    """
    options = settings.classes
    path = trained.find(settings.checkpoints)
    content = manifest.read(path)
    if options.noise_centers == "weights":
        _check_weights(path, content)
    settings, _ = training_settings.complete(settings, path)
    check_report.check_outputs(
        {"noise_report": options.noise_report}, {"new_list": options.new_list}
    )
    if options.new_list:
        images.check_listable(settings)
    batches = images.open_batches(settings)
    source = batches.source
    effects.tell(settings, effects.of_data(source.heeds))
    model = trained.load(settings.replace(checkpoint_dir=path)).model
    folder = files.parent(options.noise_report)
    scratch = folder if files.is_local(folder) else None
    with tempfile.TemporaryDirectory(prefix="noise-", dir=scratch or None) as place:
        classes, size = settings.dataset.num_classes, model.embedding_size
        store = EmbeddingStore(place, classes, size)
        for rows, labels in images.embeddings(model, batches):
            store.add(rows, labels)
        store.finish()
        logging.info("%s images are embedded.", f"{len(store.labels):,}")
        if options.noise_centers == "embeddings":
            centers = MeanCenters(store)
        else:
            stored = StoredRows(path, content["arrays"]["weight"])
            centers = WeightCenters(stored.read, store.counts > 0)
        findings = find(store, centers, options)
        facts = {"checkpoint": path, "data_set": source.name}
        table = noise_report.write(options, findings, source, facts)
        if options.new_list:

            def new_label(number, label):
                return -1 if findings.mislabelled[number] else label

            row = images.write_list(options.new_list, settings, new_label, store.labels)
            table.append(row)
    return table


def find(store, centers, options):
    """Finds labels that look wrong.

    Args:
        store: the `EmbeddingStore`.
        centers: `MeanCenters` or `WeightCenters`.
        options: the `Classes` settings.

    Returns:
        `NoiseFindings`.
    """
    thresholds = {
        "pair": options.noise_pair or ALIKE[options.noise_centers],
        "margin": options.noise_margin,
        "split": options.noise_split,
    }
    pairs = label_noise.closest_pairs(
        centers, progress=_progress("comparing centers", "pairs of blocks")
    )
    alike = pairs.above(thresholds["pair"])
    nearest = label_noise.nearest_centers(
        store, centers, alike, progress=_progress("comparing images", "images")
    )
    mislabelled = nearest.excess > thresholds["margin"]  # False if it is NaN
    splitter = two_in_one.Splitter(store, ~mislabelled)
    similarity = splitter.alike(progress=_progress("splitting classes", "classes"))
    scores = two_in_one.scores(similarity, splitter.sizes)
    order = np.argsort(-scores, kind="stable")
    first = splitter.labels[order[: options.noise_top]].tolist()
    splits = [splitter.split(label) for label in first]
    return NoiseFindings(
        store, pairs, alike, nearest, mislabelled, splits, scores[order], thresholds
    )


def _progress(action, unit):
    """Returns a function that reports the amounts done and in all."""
    progress = Progress(action, None, unit, log_every_s=30)

    def report(done, total):
        progress.at(done, done / total)
        if done >= total:
            progress.close()

    return report


def _check_weights(path, content):
    if "weight" not in content["arrays"]:
        raise ValueError(
            f"Checkpoint {path} holds no class rows. Use --noise_centers=embeddings."
        )
    editing.check_centers(path, content, dropping=False)
