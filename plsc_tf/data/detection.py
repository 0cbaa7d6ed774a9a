"""Opens photographs and finds the faces in them."""

import contextlib
import io
import struct
from collections.abc import Callable, Sequence

import numpy as np
from PIL import ExifTags, Image, ImageOps

from plsc_tf import dotted_paths
from plsc_tf.data import images
from plsc_tf.data.faults import READ_ERRORS, reason
from plsc_tf.data.image_limit import check_size
from plsc_tf.requirements import require_package
from plsc_tf.storage import files

# Function from uint8 `[h, w, 3]` photographs to the points of the faces in each of
# them, `[faces, 5, 2]`; see `plsc_tf.data.alignment`.
Detector = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]

# MTCNN gets photographs of at most this side, in pixels: its time and memory grow with
# the area. Its first network needs the least side.
_LONGEST, _SHORTEST = 1024, 24


def find_detector(name: str) -> Detector:
    """Returns a detector.

    Args:
        name: "mtcnn" (Zhang et al., "Joint face detection and alignment using
            multi-task cascaded convolutional networks", 2016), or the dotted path of a
            function, as in "my_module:detect".

    Raises:
        ImportError: the package mtcnn, the module or the function does not exist.
    """
    if name != "mtcnn":
        return dotted_paths.load(name, "detector", ":")
    model = require_package("mtcnn", "align", "detector=mtcnn").MTCNN()

    def detect(photos):
        smaller = [_fit(photo) for photo in photos]
        # Columns: the photograph, a box, a score, x of the five points, y of them.
        found = model.detect_faces(smaller, output_type="numpy", fit_to_image=False)
        for number, (photo, small) in enumerate(zip(photos, smaller, strict=True)):
            points = found[found[:, 0] == number, 6:].reshape(-1, 2, 5)
            yield points.transpose(0, 2, 1) * (len(photo) / len(small))

    return detect


def _fit(photo):
    """Returns a photograph for MTCNN; one that is too small has no face."""
    if min(photo.shape[:2]) < _SHORTEST:
        return np.zeros((_SHORTEST, _SHORTEST, 3), np.uint8)
    picture = Image.fromarray(photo)
    picture.thumbnail((_LONGEST, _LONGEST))
    return np.asarray(picture)


def open_photo(path: str, most: float, upright: bool = True) -> np.ndarray:
    """Decodes a photograph to uint8 `[h, w, 3]`.

    Args:
        path: path of the file, on any store.
        most: largest photograph, in megapixels.
        upright: whether to turn it as its EXIF data say.

    Raises:
        ValueError: it does not exist or cannot be decoded.
    """
    try:
        content = files.read(path)
        check_size(content, most)
        picture = Image.fromarray(images.decode(content).numpy())
    except (*READ_ERRORS, FileNotFoundError, ValueError) as error:
        raise ValueError(reason(error)) from error
    # Pillow's errors for damaged EXIF data.
    with contextlib.suppress(OSError, SyntaxError, ValueError, struct.error):
        turn = ExifTags.Base.Orientation
        picture.getexif()[turn] = Image.open(io.BytesIO(content)).getexif().get(turn, 1)
    return np.asarray(ImageOps.exif_transpose(picture) if upright else picture)


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
