"""From the flags to a report of labels that look wrong."""

import dataclasses
import tempfile

import numpy as np
from absl import logging

from plsc_tf.checkpoints import editing, manifest
from plsc_tf.checkpoints.stored_rows import StoredRows
from plsc_tf.evaluation import label_noise, two_in_one
from plsc_tf.evaluation.embedding_store import (
    EmbeddingStore,
    MeanCenters,
    WeightCenters,
)
from plsc_tf.jobs import trained
from plsc_tf.jobs.classes import noise_report, pictures, sheets, told
from plsc_tf.options import effects
from plsc_tf.progress import Progress
from plsc_tf.storage import files

# How much alike the centers of one identity are, by what a center is.
ALIKE = {"embeddings": 0.97, "weights": 0.7}


@dataclasses.dataclass(frozen=True)
class Found:
    """What labels look wrong.

    Attributes:
        store: the `EmbeddingStore`.
        pairs: `Pairs` of classes, the most alike first.
        alike: those of them that seem to be one identity.
        nearest: `Nearest` of every picture.
        mislabelled: bool [pictures].
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
    """Embeds the training pictures and reports labels that look wrong.

    Args:
        settings: the `Settings`; `classes` says what to write, `storage` which
            checkpoint is meant, `dataset` where the training data are.

    Returns:
        the rows of a table.

    Raises:
        FileExistsError: new_list is there already.
        FileNotFoundError: there is no checkpoint, data set or folder for the report.
        ValueError: labels that the checkpoint does not have, or a new_list of a data
            set whose pictures are no files.
    """
    given = settings.classes
    path = trained.find(settings.checkpoints)
    if given.noise_centers == "weights":
        _check_weights(path)
    settings, _ = told.settings_of(path, settings)
    _check_outputs(given)
    if given.new_list:
        pictures.check_listable(settings)
    batches = pictures.open_batches(settings)
    effects.tell(settings, effects.of_data(batches.source.heeds))
    model = trained.load(settings.replace(checkpoint_dir=path)).model
    names = getattr(batches.source, "class_names", ())
    folder = files.parent(given.noise_report)
    scratch = folder if files.is_local(folder) else None
    with tempfile.TemporaryDirectory(prefix="noise-", dir=scratch or None) as place:
        store = EmbeddingStore(
            place, settings.dataset.num_classes, model.embedding_size
        )
        for embeddings, labels in pictures.embeddings(model, batches):
            store.add(embeddings, labels)
        store.finish()
        logging.info("%s pictures are embedded.", f"{len(store.labels):,}")
        found = find(store, _centers(given, path, store), given)
        about = {"checkpoint": path, "data_set": batches.source.name}
        table = noise_report.write(
            given.noise_report, found, given, batches.source.describe, names, about
        )
        if given.noise_sheets:
            table += sheets.draw_all(given.noise_sheets, found, batches)
        if given.new_list:
            table.append(_write_list(settings, found))
    return table


def find(store, centers, given):
    """Looks for labels that look wrong.

    Args:
        store: the `EmbeddingStore`.
        centers: `MeanCenters` or `WeightCenters`.
        given: the `Classes` settings.

    Returns:
        `Found`.
    """
    thresholds = {
        "pair": given.noise_pair or ALIKE[given.noise_centers],
        "margin": given.noise_margin,
        "split": given.noise_split,
    }
    pairs = label_noise.closest_pairs(
        centers, progress=_progress("comparing centres", "pairs of blocks")
    )
    alike = pairs.above(thresholds["pair"])
    nearest = label_noise.nearest_centers(
        store, centers, alike, progress=_progress("comparing pictures", "pictures")
    )
    mislabelled = nearest.excess > thresholds["margin"]  # False where it is NaN
    splitter = two_in_one.Splitter(store, ~mislabelled)
    scores = two_in_one.scores(
        splitter.alike(progress=_progress("parting classes", "classes")), splitter.sizes
    )
    order = np.argsort(-scores, kind="stable")
    first = splitter.labels[order[: given.noise_top]].tolist()
    return Found(
        store,
        pairs,
        alike,
        nearest,
        mislabelled,
        [splitter.split(label) for label in first],
        scores[order],
        thresholds,
    )


def _progress(doing, unit):
    """A function of what is done and of how much there is to do."""
    progress = Progress(doing, None, unit, log_every_s=30)

    def tell(done, of):
        progress.at(done, done / of)
        if done >= of:
            progress.close()

    return tell


def _centers(given, path, store):
    if given.noise_centers == "embeddings":
        return MeanCenters(store)
    described = manifest.read(path)["arrays"]["weight"]
    return WeightCenters(StoredRows(path, described).read, store.counts > 0)


def _check_weights(path):
    content = manifest.read(path)
    if "weight" not in content["arrays"]:
        raise ValueError(
            f"Checkpoint {path} holds no class rows. Use --noise_centers=embeddings."
        )
    editing.check_centers(path, content, dropping=False)


def _check_outputs(given):
    if given.new_list and files.exists(given.new_list):
        raise FileExistsError(
            f"new_list {given.new_list!r} is there already; nothing is overwritten."
        )
    for name in ("noise_report", "new_list"):
        folder = getattr(given, name).rpartition("/")[0]
        if folder and not files.is_dir(folder):
            raise FileNotFoundError(f"{name}: there is no folder {folder!r}.")


def _write_list(settings, found):
    labels, mislabelled = found.store.labels, found.mislabelled

    def new_label(number, label):
        pictures.check_same(labels, number, label)
        return -1 if mislabelled[number] else label

    path = settings.classes.new_list
    count, folder = pictures.write_list(path, settings, new_label)
    return "new list", f"{path}: {count:,} pictures below {folder}"
