"""Faces in photographs, moved to where networks expect them by five points.

The points are the center of the eye on the left of the image, that of the other one,
the tip of the nose, and the corners of the mouth on the left and on the right.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from plsc_tf.data import images
from plsc_tf.data.augmentation import operations
from plsc_tf.data.faults import reason

# Where ArcFace's training images of 112 x 112 have the five points, x and y in pixels
# (insightface, recognition/arcface_torch/eval_ijbc.py).
REFERENCE = np.array(
    [
        [38.2946, 51.6963],
        [73.5318, 51.5014],
        [56.0252, 71.7366],
        [41.5493, 92.3655],
        [70.7299, 92.2041],
    ]
)
_REFERENCE_SIDE = 112


def stored_size(size: tuple[int, int]) -> tuple[int, int]:
    """The size that faces for a network are cut out at, before they are framed.

    As training images are: of 112 pixels, which a smaller network gets resized, with
    antialiasing; without it, a face of a large photograph would lose all but a few of
    its pixels.

    Args:
        size: (height, width) of the network's input.
    """
    scale = max(1.0, _REFERENCE_SIDE / max(size))
    return tuple(round(side * scale) for side in size)


def transforms(points: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Finds what turns, scales and moves faces so that their points fit best.

    Least squares over rotation, one scale and a shift, without mirroring (Umeyama,
    "Least-squares estimation of transformation parameters between two point patterns",
    1991).

    Args:
        points: [n, 5, 2] x and y of each point, in pixels of the photograph.
        size: (height, width) of the faces to cut out.

    Returns:
        float32 [n, 8], from places in the face to places in the photograph, as
        `cut_out` takes them.

    Raises:
        ValueError: another shape, or five points in one place.
    """
    points = np.asarray(points, np.float64)
    if points.ndim != 3 or points.shape[1:] != (5, 2):
        raise ValueError(
            "points must be [n, 5, 2]: x and y of eyes, nose and corners of the mouth. "
            f"Received: shape {points.shape}."
        )
    height, width = size
    target = REFERENCE * np.array([width, height]) / _REFERENCE_SIDE
    # As complex numbers a similarity is z -> a z + b, and least squares a quotient.
    source = points[..., 0] + 1j * points[..., 1]
    wanted = np.broadcast_to(target[:, 0] + 1j * target[:, 1], source.shape)
    centred = wanted - wanted.mean(axis=1, keepdims=True)
    spread = source - source.mean(axis=1, keepdims=True)
    power = np.sum(np.abs(spread) ** 2, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.sum(centred * spread.conj(), axis=1) / power
    good = (power > 0) & (np.abs(scale) > 0)
    if not good.all():
        bad = int(np.argmin(good))
        raise ValueError(
            f"The five points must be those of a face. Received for face {bad}: "
            f"{points[bad].tolist()}."
        )
    shift = wanted.mean(axis=1) - scale * source.mean(axis=1)
    back, offset = 1 / scale, -shift / scale
    zeros = np.zeros(len(points))
    columns = [back.real, -back.imag, offset.real, back.imag, back.real, offset.imag]
    return np.stack([*columns, zeros, zeros], axis=1).astype(np.float32)


def align(
    image: bytes | np.ndarray,
    points: np.ndarray,
    image_size: tuple[int, int] = (112, 112),
) -> np.ndarray:
    """Cuts a face out of a photograph, turned and scaled as networks expect faces.

    Example: `face = plsc_tf.align(open("photo.jpg", "rb").read(), points)`.

    Args:
        image: an encoded JPEG or PNG, or uint8 [h, w, 3], RGB.
        points: [5, 2] x and y in pixels: the eye on the left of the image, the other
            one, the tip of the nose, the corners of the mouth, left and right.
        image_size: (height, width) of the result.

    Returns:
        uint8 [height, width, 3]; black where there is no photograph.

    Raises:
        ValueError: points that are not those of a face, or bytes that are no image.
    """
    points = np.asarray(points)
    if points.shape != (5, 2):
        raise ValueError(
            "points must be [5, 2]: x and y of eyes, nose and corners of the mouth. "
            f"Received: shape {points.shape}."
        )
    try:
        pixels = images.to_rgb(image)
    except (tf.errors.OpError, UnicodeDecodeError) as error:
        raise ValueError(
            f"image must be an encoded JPEG or PNG: {reason(error)}"
        ) from error
    size = tuple(image_size)
    return cut_out(pixels, tf.constant(transforms(points[None], size)[0]), size).numpy()


def cut_out(image: tf.Tensor, transform: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """Cuts a face out of a photograph; black where there is no photograph.

    Args:
        image: uint8 [h, w, 3].
        transform: float32 [8], one row of `transforms`.
        size: (height, width), the same as there.

    Returns:
        uint8 [height, width, 3], bilinear.
    """
    return operations.warp(image, transform, 0, size)
