"""Computes class rows from embeddings: new classes and dominant sub-centers.

Source: sub-center ArcFace (Deng et al., ECCV 2020), section 3.3. After training with
several centers per class, only the dominant center is kept. Images more than 75 degrees
from it are removed from the data, and an ordinary head is trained on the rest.
"""

import dataclasses

import numpy as np

from plsc_tf.data.readers.image_files import class_folders
from plsc_tf.evaluation.embedding_store import check_labels, unit
from plsc_tf.jobs import trained
from plsc_tf.jobs.builders import data
from plsc_tf.jobs.builders.heads import make_head
from plsc_tf.progress import Progress
from plsc_tf.requirements import require

# Images that are farther from the dominant center, in degrees, are left out.
FARTHEST = 75.0
# Number of rows used to estimate the mean length.
_SAMPLE = 4096


def embeddings(settings, path, source):
    """Embeds images in file order, framed as in evaluation.

    Args:
        settings: the `Settings`.
        path: the checkpoint folder.
        source: the images' `Source`.

    Yields:
        (unit embeddings float32 `[n, size]`, labels `[n]`), batch by batch.
    """
    size = settings.evaluation.test_batch_size
    model = trained.load(settings.replace(checkpoint_dir=path)).model
    for images, labels in data.load_batches(settings, size, "test", source):
        yield unit(model.embed(images, size)), np.asarray(labels)


def collect(settings, run, source, stored, make_labels):
    """Collects the rows of the new classes that the settings specify.

    Args:
        settings: the `Settings`.
        run: the `Settings` of the training.
        source: the checkpoint folder.
        stored: the checkpoint's class rows.
        make_labels: function that takes the number of new classes, checks all labels
            and returns the `LabelsMap`.

    Returns:
        (function that takes (low, high) and returns the rows of the new classes
        `[low, high)`, names of the first new classes, the `LabelsMap`).

    Raises:
        FileNotFoundError: the folder does not exist.
        ValueError: labels are invalid.
    """
    options, size = settings.classes, stored.shape[1]
    make_labels(1)  # raises an error for invalid labels before any work
    known, names = np.empty((0, size), np.float32), ()
    if options.class_images:
        known, names = _means(settings, source, stored)
    labels = make_labels(len(known) + options.add_classes)
    # The other rows are initialized like the head's rows in a new training.
    head = make_head(run.replace(num_classes=labels.num_classes))
    head.embedding_size = size
    first = len(labels.origins)

    def read(low, high):
        rows = known[low:high]
        if high <= len(known):
            return rows
        drawn = head.initial_weight(first + max(low, len(known)), first + high)
        return np.concatenate([rows, drawn])

    return read, names, labels


def _means(settings, source, stored):
    """Returns (mean embeddings, class names).

    The means are scaled to the mean length of the checkpoint's rows.
    """
    folders = class_folders(settings.classes.class_images)
    names = folders.class_names
    means = np.zeros((len(names), stored.shape[1]))
    for rows, labels in embeddings(settings, source, folders):
        np.add.at(means, labels, rows)
    rows = stored.read(0, min(_SAMPLE, stored.shape[0])).astype(np.float64)
    length = np.mean(np.linalg.norm(rows, axis=1))
    return (unit(means) * length).astype(np.float32), names


@dataclasses.dataclass(frozen=True)
class Dominant:
    """The dominant center of each class, and the images' angles to it.

    Attributes:
        centers: int64 `[classes]`, number of the center that is nearest to most of the
            class's images; 0 for a class without images.
        counts: int64 `[classes, sub_centers]`, number of images nearest to each center.
        far: bool `[images]`, whether each image is more than `FARTHEST` degrees from
            the dominant center.
    """

    centers: np.ndarray
    counts: np.ndarray
    far: np.ndarray


def find_dominant(settings, source, stored, training_data):
    """Embeds the training images and assigns each to a center of its class.

    Args:
        settings: the `Settings` of the data and the preprocessing.
        source: the checkpoint folder.
        stored: the checkpoint's class rows, `[classes, sub_centers, emb]`.
        training_data: the checkpoint's `TrainingData`.

    Returns:
        `Dominant`.

    Raises:
        ValueError: the data set has no images, or a label is not one of the
            checkpoint's classes.
    """
    classes, centers, _ = stored.shape
    counts = np.zeros((classes, centers), np.int64)
    cosines, labels = [], []
    embedded = embeddings(settings, source, training_data.source)
    progress = Progress("comparing images with centers", None, "images")
    for rows, own in progress.over(embedded, lambda batch: len(batch[1])):
        check_labels(own, classes)
        present, places = np.unique(own, return_inverse=True)
        weights = unit(np.asarray(stored.take(present), np.float32))
        cosines.append(np.einsum("ij,ikj->ik", rows, weights[places]))
        labels.append(own)
        np.add.at(counts, (own, cosines[-1].argmax(axis=1)), 1)
    require(labels, "The training data has no images")
    labels, dominant = np.concatenate(labels), counts.argmax(axis=1)
    near = np.concatenate(cosines)[np.arange(len(labels)), dominant[labels]]
    angles = np.degrees(np.arccos(np.clip(near, -1.0, 1.0)))
    return Dominant(dominant, counts, ~(angles <= FARTHEST))  # NaN is far


def dominant_table(dominant):
    """Returns table rows that describe a `Dominant`."""
    total = len(dominant.far)
    own = int(dominant.counts.max(axis=1).sum())
    empty = int(np.count_nonzero(dominant.counts.sum(axis=1) == 0))
    far = int(np.count_nonzero(dominant.far))
    rows = [
        ("centers", f"{dominant.counts.shape[1]} -> 1 per class"),
        ("nearest to the dominant center", f"{own:,} of {total:,} images"),
        (f"farther than {FARTHEST:g} degrees away", f"{far:,} of {total:,} images"),
    ]
    if empty:
        rows.append(("classes without images", f"{empty:,}, kept their first center"))
    return rows
