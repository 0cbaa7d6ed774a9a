"""The pairs that a model is most wrong about, and their pictures."""

import io

import numpy as np
import tensorflow as tf
from PIL import Image

from plsc_tf.data import images

PAIRS = 8
_SIDE = 128


def add(report, scores, left, right, name, read):
    """Adds the worst pairs of both kinds to a report, with their pictures.

    Args:
        report: the `SetReport`; its threshold says what is accepted.
        scores: `PairScores`.
        left: int [pairs], pictures.
        right: int [pairs].
        name: callable, picture -> its name.
        read: callable, picture -> its bytes or pixels, or None without any.
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
                    "left": name(sides[0]),
                    "right": name(sides[1]),
                }
            )


def short_name(path):
    """The file of a path, after its folder where the file does not begin with it."""
    *_, folder, file = ("", *path.replace("\\", "/").split("/"))
    return file if file.startswith(folder) else f"{folder}/{file}"


def encoded(image):
    """A JPEG of a stored picture, at most 128 pixels wide and high; None without one.

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
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=88)
    return buffer.getvalue()
