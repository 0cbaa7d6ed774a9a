"""Aligns faces in photographs to the position networks expect, by five points.

The points are the centers of the left and the right eye, the tip of the nose, and the
left and the right corner of the mouth. Left and right are as seen in the image.
"""

from typing import NamedTuple

import numpy as np

from plsc_tf.data import faults, images
from plsc_tf.data.augmentation import operations
from plsc_tf.requirements import require

# Positions of the five points in ArcFace's 112 x 112 training images, x and y in pixels
# (insightface, recognition/arcface_torch/eval_ijbc.py).
_X = [38.2946, 73.5318, 56.0252, 41.5493, 70.7299]
_Y = [51.6963, 51.5014, 71.7366, 92.3655, 92.2041]
REFERENCE = np.stack([_X, _Y], axis=1)
_REFERENCE_SIDE = 112


class Face(NamedTuple):
    """A face in a photograph.

    Attributes:
        points: float64 `[5, 2]`, x and y of the points, in pixels of the photograph.
        box: float64 `[4]`: left, top, right and bottom of the square that becomes
            `pixels` when it is turned. It may extend beyond the photograph.
        pixels: uint8 `[height, width, 3]`, the face; black outside the photograph.
    """

    points: np.ndarray
    box: np.ndarray
    pixels: np.ndarray


def stored_size(size: tuple[int, int]) -> tuple[int, int]:
    """Returns the size at which to cut out faces before they are framed.

    At least 112 pixels, like the training images: for a network with a smaller input,
    the face is resized afterward with antialiasing. Cutting it out at the smaller size
    directly would skip most pixels of a face in a large photograph.

    Args:
        size: (height, width) of the network's input.
    """
    scale = max(1.0, _REFERENCE_SIDE / max(size))
    return tuple(round(side * scale) for side in size)


def transforms(points: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Computes the transforms that best fit the faces' points to `REFERENCE`.

    Least squares over rotation, one scale and a shift, without mirroring (Umeyama,
    "Least-squares estimation of transformation parameters between two point patterns",
    1991).

    Args:
        points: `[n, 5, 2]`, x and y of each point, in pixels of the photograph.
        size: (height, width) of the faces to cut out.

    Returns:
        float32 `[n, 8]`, transforms for `operations.warp`; they map coordinates in the
        face to coordinates in the photograph.

    Raises:
        ValueError: `points` has a different shape or is not finite, or the five points
            of a face coincide.
    """
    points = np.asarray(points, np.float64)
    fits = points.ndim == 3 and points.shape[1:] == (5, 2) and np.isfinite(points).all()
    rule = "A face must have finite points [5, 2]: x and y of eyes, nose, mouth corners"
    require(fits, rule, shape=points.shape[1:])
    height, width = size
    # With points as complex numbers, a similarity transform is z -> scale z + shift.
    wanted = REFERENCE * [width, height] / _REFERENCE_SIDE @ [1, 1j]
    rows = []
    for face, source in enumerate(points @ [1, 1j]):
        columns = np.stack([source, np.ones(5)], axis=1)
        (scale, shift), _, rank, _ = np.linalg.lstsq(columns, wanted, rcond=None)
        rule = "The five points of a face must not coincide"
        require(rank == 2 and scale, rule, face=face, points=points[face].tolist())
        back, offset = 1 / scale, -shift / scale
        row = [back.real, -back.imag, offset.real, back.imag, back.real, offset.imag]
        rows.append([*row, 0, 0])
    return np.array(rows, np.float32).reshape(-1, 8)


def align_face(
    image: bytes | np.ndarray,
    points: np.ndarray,
    image_size: tuple[int, int] = (112, 112),
) -> np.ndarray:
    """Cuts a face out of a photograph, rotated and scaled as networks expect it.

    Example: `face = plsc_tf.align_face(open("photo.jpg", "rb").read(), points)`.

    Args:
        image: an encoded JPEG or PNG, or uint8 `[h, w, 3]`, RGB.
        points: `[5, 2]`, x and y in pixels of the left eye, the right eye, the tip of
            the nose, and the left and the right corner of the mouth. Left and right
            are as seen in the image.
        image_size: (height, width) of the result.

    Returns:
        uint8 `[height, width, 3]`; black outside the photograph.

    Raises:
        ValueError: `points` are not the points of a face, or `image` cannot be decoded.
    """
    size = tuple(image_size)
    transform = transforms(np.asarray(points)[np.newaxis], size)[0]
    try:
        pixels = images.to_rgb(image)
    except faults.READ_ERRORS as error:
        problem = f"image must be an encoded JPEG or PNG: {faults.reason(error)}"
        raise ValueError(problem) from error
    return operations.warp(pixels, transform, 0, size).numpy()


def cut_faces(
    photo: np.ndarray,
    points: np.ndarray,
    size: tuple[int, int],
    central: bool = False,
    most: int | None = None,
) -> list[Face]:
    """Cuts the faces out of a photograph, the largest first.

    Args:
        photo: uint8 `[h, w, 3]`.
        points: `[faces, 5, 2]`, the points of each face.
        size: (height, width) of the results.
        central: whether the most central face is first instead.
        most: maximum number of faces to cut out; None for all.

    Raises:
        ValueError: see `transforms`.
    """
    if not len(points):
        return []
    points = np.asarray(points, np.float64)
    back, middle = transforms(points, size), np.array(size[::-1]) / 2
    centers = back[:, :6].reshape(-1, 2, 3) @ [*middle, 1]
    halves = np.outer(np.hypot(back[:, 0], back[:, 3]), middle)
    boxes = np.concatenate([centers - halves, centers + halves], axis=1)
    whole = np.array(photo.shape[1::-1])
    away = np.mean(points, axis=1) - whole / 2
    # The part of the photograph around each face: all of it takes 20 ms to convert.
    near, far = np.nan_to_num([centers - 1.5 * halves - 2, centers + 1.5 * halves + 3])
    low = np.clip(near, 0, whole - 1).astype(int)
    high = np.clip(far, low + 1, whole).astype(int)
    back[:, [2, 5]] -= low
    order = np.argsort(np.linalg.norm(away, axis=1) if central else -halves[:, 0])
    boxed = zip(low, high, strict=True)
    parts = [photo[y:y_end, x:x_end] for (x, y), (x_end, y_end) in boxed]
    return [
        Face(points[k], boxes[k], operations.warp(parts[k], back[k], 0, size).numpy())
        for k in order[:most].tolist()
    ]


def sharpness(face: np.ndarray) -> float:
    """Returns the variance of the Laplacian of a face's gray levels.

    It is small for blurred and for enlarged faces (Pech-Pacheco et al., "Diatom
    autofocusing in brightfield microscopy", 2000).

    Args:
        face: uint8 `[h, w, 3]`.
    """
    gray = face.mean(axis=2)
    neighbors = gray[:-2, 1:-1] + gray[2:, 1:-1] + gray[1:-1, :-2] + gray[1:-1, 2:]
    return float((neighbors - 4 * gray[1:-1, 1:-1]).var())
