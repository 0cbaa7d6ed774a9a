"""Finds the faces in photographs."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf
from PIL import ExifTags, Image, ImageOps

from plsc_tf import dotted_paths
from plsc_tf.data import faults, images
from plsc_tf.data.image_limit import check_size, read_image
from plsc_tf.data.paths import NO_FILE
from plsc_tf.requirements import prefix_errors, require, require_package

# Function from uint8 `[h, w, 3]` photographs to the points of the faces in each of
# them, `[faces, 5, 2]`; `alignment` says which points.
Detector = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]

# Photographs in memory at a time.
_BATCH = 16
# MTCNN gets photographs of at most this side, in pixels: its time and memory grow with
# the area.
_LONGEST = 1024
# Side of the smallest face that is wanted, in pixels of the photograph. MTCNN's boxes
# are smaller; it finds none below a size, in pixels of what it gets.
SMALLEST = 40.0
_BOX_SHARE, _SMALLEST_BOX = 0.7, 20.0
# oneDNN keeps megabytes for each size of its arrays, in each thread. So MTCNN gets
# multiples of these: of the sides of photographs, of the sizes of boxes, from which its
# scales follow, and of the number of places that its other networks look at.
_SIDE, _BOX, _PLACES = 256, 4.0, 64
# Side of what its first network takes for a face.
_CELL = 12
# Places at each scale that MTCNN takes for faces at first: it compares all with each
# other. Photographs of people have fewer, unless they are made to fill the memory.
_MOST_PLACES = 300


def find_detector(name: str, smallest: float = SMALLEST) -> Detector:
    """Returns a detector.

    Args:
        name: "mtcnn" (Zhang et al., "Joint face detection and alignment using
            multi-task cascaded convolutional networks", 2016), or the dotted path of a
            function, as in "my_module:detect".
        smallest: side of the smallest face that MTCNN looks for, in pixels; smaller
            ones take it twice as long, and may be found nevertheless.

    Raises:
        ImportError: the package mtcnn, the module or the function does not exist.
    """
    if name != "mtcnn":
        return dotted_paths.load(name, "detector")
    model = require_package("mtcnn", "align", "detector=mtcnn").MTCNN()
    first, second, third = (stage.model for stage in model.stages)
    first.call = _compiled(_limited(first.call), None)
    second.call, third.call = _compiled(second.call, 24), _compiled(third.call, 48)

    def find(photo):
        small, ratio = _fit(photo)
        box = max(_BOX_SHARE * smallest / ratio // _BOX * _BOX, _SMALLEST_BOX)
        options = {"min_face_size": box, "fit_to_image": False}
        # Columns: 0, a box, a score, x of the five points, y of them.
        found = model.detect_faces(small, output_type="numpy", **options)
        return found[:, 6:].reshape(-1, 2, 5).transpose(0, 2, 1) * ratio

    def detect(photos):
        # One at a time: in a batch, all would be padded to the size of the largest, and
        # the package shifts faces after a photograph without any.
        if len(photos) == 1:
            return [find(photos[0])]  # in the same thread, which has its own memory
        with ThreadPoolExecutor() as pool:
            return list(pool.map(find, photos))

    return detect


def _compiled(call, side):
    """Returns a network's call in a graph: its many operations are short."""
    spec = tf.TensorSpec([None, side, side, 3], tf.float32)

    def padded(images):
        count = tf.shape(images)[0]
        more = -count % _PLACES if side else 0
        outputs = call(tf.pad(images, [[0, more], [0, 0], [0, 0], [0, 0]]))
        return tf.nest.map_structure(lambda output: output[:count], outputs)

    return tf.function(padded, [spec], autograph=False)


def _limited(call):
    """Returns MTCNN's first network with no more than `_MOST_PLACES` faces."""

    def limited(image):
        # At the last scales, photographs are smaller than a face.
        more = tf.maximum(_CELL - tf.shape(image), 0) * [0, 1, 1, 0]
        boxes, scores = call(tf.pad(image, tf.stack([tf.zeros_like(more), more], 1)))
        faces = tf.pad(tf.reshape(scores[..., 1], [-1]), [[0, _MOST_PLACES + 1]])
        least = tf.math.top_k(faces, _MOST_PLACES + 1).values[-1]
        return boxes, tf.where(scores > least, scores, 0.0)

    return limited


def _fit(photo):
    """Returns (the photograph, shrunk and padded for MTCNN; how much it was shrunk)."""
    picture = Image.fromarray(photo)
    picture.thumbnail((_LONGEST, _LONGEST))
    ratio = photo.shape[0] / picture.height
    # From integers, it would make 64-bit numbers.
    pixels = np.asarray(picture, np.float32)
    more = [(0, -side % _SIDE) for side in pixels.shape[:2]]
    return np.pad(pixels, [*more, (0, 0)]), ratio


def open_photo(content: bytes, most: float, upright: bool = True) -> np.ndarray:
    """Decodes a photograph to uint8 `[h, w, 3]`.

    Args:
        content: content of the file.
        most: largest photograph, in megapixels.
        upright: whether to turn it as its EXIF data say.

    Raises:
        ValueError: it cannot be decoded.
    """
    try:
        check_size(content, most)
        picture = Image.fromarray(images.decode(content).numpy())
    except (*faults.READ_ERRORS, ValueError) as error:
        raise ValueError(faults.reason(error)) from error
    if upright:
        picture.getexif()[ExifTags.Base.Orientation] = images.orientation(content)
    return np.asarray(ImageOps.exif_transpose(picture))


@dataclasses.dataclass
class FaceFinder:
    """Reads photographs and finds the faces in them, in batches.

    Args:
        detector: see `find_detector`.
        most: largest photograph, in megapixels.
        points: `[photographs, 5, 2]`, one known face each, in the stored photographs;
            None finds the faces in upright ones.
        smallest: see `find_detector`.

    Raises:
        ImportError: see `find_detector`.
    """

    detector: str
    most: float
    points: np.ndarray | None = None
    smallest: float = SMALLEST

    def __post_init__(self):
        if self.points is None:
            self._detect = find_detector(self.detector, self.smallest)

    def map(self, use: Callable, paths: Sequence[str], start: int = 0) -> Iterator[Any]:
        """Calls a function for each photograph, in threads; yields what it returns.

        Args:
            use: function of (index, photograph or a text that says why it cannot be
                read, points of its faces).
            paths: paths of the photographs, on any store.
            start: index of the first photograph.

        Raises:
            ValueError: the detector returned no points of faces; the message names the
                photograph.
        """

        def call(index, photo, points):
            with prefix_errors(paths[index]):
                return use(index, photo, points)

        with ThreadPoolExecutor() as pool:
            for first in range(start, len(paths), _BATCH):
                photos = list(pool.map(self._read, paths[first : first + _BATCH]))
                yield from pool.map(
                    call, itertools.count(first), photos, self._find(photos, first)
                )

    def _read(self, path):
        try:
            return open_photo(read_image(path), self.most, self.points is None)
        except (*NO_FILE, ValueError) as error:
            return faults.reason(error)

    def _find(self, photos, first):
        if self.points is not None:
            return self.points[first : first + len(photos), np.newaxis]
        good = [photo for photo in photos if not isinstance(photo, str)]
        returned = self._detect(good) if good else ()
        found = [] if returned is None else list(returned)
        rule = "The detector must return the faces of each photograph"
        require(len(found) == len(good), rule, photographs=len(good), lists=len(found))
        faces = (() if one is None else one for one in found)
        return [() if isinstance(photo, str) else next(faces) for photo in photos]
