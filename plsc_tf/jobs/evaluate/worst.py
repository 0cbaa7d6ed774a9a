"""The pairs that a model is most wrong about, and their images."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from PIL import Image

from plsc_tf.data import images
from plsc_tf.data.image_encoding import encode

PAIRS = 8
_SIDE = 128


def add(  # noqa: PLR0913 - the columns of a set of pairs
    report, scores, left: np.ndarray, right: np.ndarray, names: Sequence, read: Callable
) -> None:
    """Adds the worst pairs of both kinds to a report, with their images.

    Args:
        report: the `SetReport`; its threshold accepts or rejects the pairs.
        scores: `PairScores`.
        left: int [pairs], images.
        right: int [pairs].
        names: of the images.
        read: callable, image -> its bytes or pixels, or None without any.
    """
    threshold = report.threshold.get("squared_l2")
    if threshold is None:
        threshold = report.threshold["best_squared_l2"]
    distances, same = scores.distances, scores.same
    for kind, rows, order in (
        ("false accept", np.flatnonzero(~same), 1),
        ("false reject", np.flatnonzero(same), -1),
    ):
        ordered = rows[np.argsort(order * distances[rows], kind="stable")][:PAIRS]
        for row in ordered.tolist():
            sides = int(left[row]), int(right[row])
            pictures = [encoded(read(side)) for side in sides]
            if all(pictures):
                report.pictures[len(report.worst)] = tuple(pictures)
            report.worst.append(
                {
                    "kind": kind,
                    "cosine": float(1 - distances[row] / 2),
                    "squared_l2": float(distances[row]),
                    "accepted": bool(distances[row] < threshold),
                    "left": str(names[sides[0]]),
                    "right": str(names[sides[1]]),
                }
            )


def short_name(path: str) -> str:
    """The file of a path, with its folder unless the file's name begins with it."""
    *_, folder, file = ("", *path.replace("\\", "/").split("/"))
    return file if file.startswith(folder) else f"{folder}/{file}"


def encoded(image: bytes | np.ndarray | None) -> bytes | None:
    """A JPEG of a stored image, at most 128 pixels wide and high; None without one.

    Args:
        image: bytes or pixels, which may be damaged; or None.
    """
    if image is None:
        return None
    try:
        pixels = images.to_rgb(tf.convert_to_tensor(image)).numpy()
    except (tf.errors.OpError, UnicodeDecodeError):
        return None
    picture = Image.fromarray(pixels)
    picture.thumbnail((_SIDE, _SIDE))
    return encode(picture, "JPEG", quality=88)
