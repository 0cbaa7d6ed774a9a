"""The dominant one of several centers of a class, and the images far from it.

Sub-center ArcFace (Deng et al., ECCV 2020), section 3.3: after a training with several
centers per class the dominant one stays, and images farther than 75 degrees from it are
left out of the data, on which an ordinary head is trained then.
"""

import dataclasses

import numpy as np

from plsc_tf.jobs import trained
from plsc_tf.jobs.classes import images
from plsc_tf.progress import Progress


@dataclasses.dataclass(frozen=True)
class Dominant:
    """The dominant centers and the images around them.

    Attributes:
        centers: int64 [classes], the center that most images of a class are nearest
            to; the first one for a class without images.
        counts: int64 [classes, sub_centers], images nearest to each center.
        labels: int64 [images].
        angles: float32 [images], to the dominant center, in degrees.
    """

    centers: np.ndarray
    counts: np.ndarray
    labels: np.ndarray
    angles: np.ndarray


def find(settings, source, stored):
    """Embeds the training images and assigns each to a center of its class.

    Args:
        settings: the `Settings` of data and preprocessing.
        source: the checkpoint folder.
        stored: its class rows, `[classes, sub_centers, emb]`.

    Returns:
        `Dominant`.

    Raises:
        ValueError: the data set has no image, or labels that the checkpoint does not
            have.
    """
    classes, centers, _ = stored.shape
    counts = np.zeros((classes, centers), np.int64)
    cosines, labels = [], []
    batches = images.open_batches(settings)
    model = trained.load(settings.replace(checkpoint_dir=source)).model
    progress = Progress("comparing with centers", None, "images", log_every_s=30)
    for rows, own in images.embeddings(model, batches):
        if own.min() < 0 or own.max() >= classes:
            raise ValueError(
                f"The checkpoint has the classes 0 to {classes - 1}. Received: labels "
                f"from {own.min()} to {own.max()}."
            )
        present, places = np.unique(own, return_inverse=True)
        weights = np.asarray(stored.take(present), np.float32)
        weights /= np.maximum(np.linalg.norm(weights, axis=2, keepdims=True), 1e-12)
        cosines.append(np.einsum("ij,ikj->ik", rows, weights[places]))
        labels.append(own)
        np.add.at(counts, (own, cosines[-1].argmax(axis=1)), 1)
        progress.add(len(own))
    progress.close()
    if not labels:
        raise ValueError("The training data hold no image.")
    labels, dominant = np.concatenate(labels), counts.argmax(axis=1)
    near = np.concatenate(cosines)[np.arange(len(labels)), dominant[labels]]
    angles = np.degrees(np.arccos(np.clip(near, -1.0, 1.0)))
    return Dominant(dominant, counts, labels, angles)


def table(dominant, limit):
    """Returns rows of a table, for an angle of `limit` degrees."""
    total = len(dominant.labels)
    own = int(dominant.counts.max(axis=1).sum())
    empty = int(np.count_nonzero(dominant.counts.sum(axis=1) == 0))
    far = int(np.count_nonzero(dominant.angles > limit))
    rows = [
        ("centers", f"{dominant.counts.shape[1]} -> 1 per class"),
        ("nearest to the dominant center", f"{own:,} of {total:,} images"),
        (f"farther than {limit:g} degrees from it", f"{far:,} of {total:,} images"),
    ]
    if empty:
        rows.append(("classes without images", f"{empty:,}, with their first center"))
    return rows
