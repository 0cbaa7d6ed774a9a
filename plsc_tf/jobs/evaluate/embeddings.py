"""Sources of embeddings by name: image files, or saved embeddings."""

import functools
import os

import numpy as np
import tensorflow as tf

from plsc_tf.data import alignment, load as data_load
from plsc_tf.data.detection import FaceFinder
from plsc_tf.data.faults import OUTAGES, READ_ERRORS, reason
from plsc_tf.data.image_limit import MAX_MEGAPIXELS, check_size
from plsc_tf.data.paths import file_reader
from plsc_tf.data.preprocessing import own_augmentation
from plsc_tf.data.source import without_autograph
from plsc_tf.evaluation import lists
from plsc_tf.evaluation.verification import embed_batch
from plsc_tf.jobs.builders.data import framing
from plsc_tf.requirements import require
from plsc_tf.storage import files

# Number of saved embeddings per block, and the most without names.
ROWS, _MOST_ROWS = 2048, 4_000_000
# Bytes of saved embeddings, as float64, that may be taken as often as one likes.
_SMALL = 1 << 26
# Maximum number of images to decode ahead, and the maximum size of their pixels.
_AHEAD, _AHEAD_BYTES = 512, 128 << 20
_NAMES_ADVICE = (
    " Write the names into the .txt file next to it, or list row numbers, from 0."
)


class Pictures:
    """Embeds image files by name.

    Args:
        embed: callable, uint8 `[n, height, width, 3]` -> `[n, embedding_size]`.
        framing: the `Preprocessing` whose `evaluate` frames the images.
        batch_size: number of images in a global batch.
        flip: whether to add the embeddings of mirror images.
        max_megapixels: largest image to decode, in megapixels.

    Attributes:
        image_size: (height, width) of the framed images.
        batch_size, flip: see above.
    """

    def __init__(
        self, embed, framing, batch_size, flip=True, max_megapixels=MAX_MEGAPIXELS
    ):
        self._embed, self._frame, self.batch_size = embed, framing.evaluate, batch_size
        self.image_size, self.flip = framing.image_size, flip
        self._max_megapixels = max_megapixels

    def blocks(self, names, folder, points=None):
        """Yields (embeddings, norms) of consecutive images, batch by batch.

        Args:
            names: file names relative to `folder`, or absolute paths.
            folder: path of the images' folder.
            points: see `rows`.

        Raises:
            ValueError: an image cannot be read or decoded; the message contains its
                path.
        """
        paths = [files.join(folder, name) for name in names]
        advice = f"Set image_dir if the images are not in {folder or '.'}."
        for _, *block in self.rows(paths, points, advice=advice):
            yield tuple(block)

    def rows(self, paths, points=None, skipped=None, advice=""):
        """Yields (rows, embeddings, norms) of images, batch by batch.

        Embeddings are float64. With `flip`, they are the sum of both passes'
        embeddings, and the norms are the mean of both passes' norms.

        Args:
            paths: paths of the files.
            points: float32 `[images, 5, 2]`, positions of the eyes, nose and corners of
                the mouth, used to align the images; or a `FaceFinder`, to use the
                largest face of each; None doesn't align them.
            skipped: dict that collects {path: error} of unreadable images, which are
                left out; None raises an error for the first one.
            advice: how to fix that error, for its message.

        Raises:
            ValueError: an image cannot be read or decoded, and `skipped` is None or the
                store failed; the message contains its path.
        """
        pixels, rows = np.empty((self.batch_size, *self.image_size, 3), np.uint8), []
        iterator = self._decoded(paths, points)
        for row in range(len(paths)):
            try:
                image = next(iterator)
                if isinstance(image, tf.errors.OpError):
                    raise image
                pixels[len(rows)] = image
                rows.append(row)
            except READ_ERRORS as error:
                if skipped is None or isinstance(error, OUTAGES):
                    remedy = f" {advice}" if skipped is None else ""
                    message = f"{paths[row]} cannot be read: {reason(error)}{remedy}"
                    raise ValueError(message) from error
                skipped[paths[row]] = reason(error)
            if rows and (len(rows) == len(pixels) or row == len(paths) - 1):
                batch = embed_batch(self._embed, pixels[: len(rows)], self.flip)
                yield np.array(rows), *batch
                rows = []

    def _faces(self, paths, points):
        """Returns an iterator of the images' framed faces, or of errors."""
        size, finder = alignment.stored_size(self.image_size), points
        if not isinstance(finder, FaceFinder):
            finder = FaceFinder("", self._max_megapixels, points)

        def frame(_, photo, points):
            if isinstance(photo, str) or not len(points):
                problem = photo if isinstance(photo, str) else "no face was found."
                return tf.errors.InvalidArgumentError(None, None, problem)
            (face,) = alignment.cut_faces(photo, points, size, most=1)
            return self._frame(face.pixels).numpy()

        return finder.map(frame, paths)

    def _decoded(self, paths, points):
        """Returns an iterator of framed images, decoded ahead."""
        if points is not None:
            return self._faces(paths, points)
        size = self.image_size
        check = functools.partial(check_size, max_megapixels=self._max_megapixels)
        read = file_reader(paths[0] if len(paths) else "", check)

        def frame(path):
            return self._frame(read(path))

        encoded = [os.fsencode(path) for path in paths]
        dataset = tf.data.Dataset.from_tensor_slices(encoded)
        framed = dataset.map(without_autograph(frame), tf.data.AUTOTUNE)
        ahead = min(_AHEAD, _AHEAD_BYTES // (3 * size[0] * size[1]))
        return framed.prefetch(ahead).as_numpy_iterator()


def of_model(model, settings):
    """Returns `Pictures` for a trained model.

    Args:
        model: the `Classifier`.
        settings: the `Settings` of its training.
    """
    flip = settings.embedding.flip
    if flip is None:  # as in verification: unless the data set is not preprocessed
        flip = data_load.info(settings.dataset.dataset_name).augmentation != "none"
    size, most = settings.evaluation.test_batch_size, settings.server.max_megapixels
    embed = functools.partial(model.embed, batch_size=size)
    return Pictures(embed, framing(settings), size, flip, most)


def of_export(model, settings):
    """Returns `Pictures` for a model of `plsc_tf.serving.exported`."""
    flip = settings.embedding.flip
    if flip is None:
        # The data set is unknown, so flip if the preprocessing flips in training.
        augmentation = own_augmentation(model.frame.name)
        flip = augmentation is not None and augmentation.flip > 0
    size, most = settings.evaluation.test_batch_size, settings.server.max_megapixels
    return Pictures(model.embed, model.frame, size, flip, most)


class Saved:
    """Looks up the embeddings in a .npy file by name.

    The names are in the .txt file next to it; without such a file, they are the row
    numbers.

    Args:
        path: path of the .npy file; a local file is memory-mapped.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file does not contain floats `[n, embedding_size]`, or the list
            does not have n names.
    """

    def __init__(self, path):
        self.path = self._names_path = path
        self._matrix = lists.read_rows(path)
        count, listed = len(self._matrix), f"{path.removesuffix('.npy')}.txt"
        if files.exists(listed):
            self._names = lists.read_names(files.read(listed), listed)
            self._names_path = listed
        else:
            rule = f"{path} has more than {_MOST_ROWS} rows, so it needs names in "
            require(count <= _MOST_ROWS, f"{rule}{listed}", rows=count)
            self._names = tuple(map(str, range(count)))
        rule = f"{listed} must have a name for each of the {count} rows of {path}"
        require(len(self._names) == count, rule, names=len(self._names))

    def blocks(self, names, folder, points=None):
        """See `Pictures.blocks`; `folder` and `points` have no effect."""
        rows = lists.positions(names, self._names, self._names_path, _NAMES_ADVICE)
        # A short list could otherwise repeat a wide row until the memory is full.
        rule = f"Lists must not name the rows of {self.path} again and again"
        width = self._matrix.shape[1]
        fits = 8 * width * len(rows) <= 4 * self._matrix.nbytes + _SMALL
        require(fits, rule, names=len(rows), rows=len(self._names))
        at_once = max(1, min(ROWS, _SMALL // 8 // width))
        for start in range(0, len(rows), at_once):
            some = rows[start : start + at_once]
            block = self._matrix[some].astype(np.float64)
            norms = np.linalg.norm(block, axis=1)
            bad = np.flatnonzero(~((norms > 1e-30) & (norms < 1e38)))  # as float32
            rule = f"Listed rows of {self.path} must be of lengths from 1e-30 to 1e38"
            require(not len(bad), rule, row=some[bad[:1]], length=norms[bad[:1]])
            yield block, norms


def gathered(blocks, dtype=np.float32):
    """Concatenates blocks.

    Returns:
        (embeddings `[n, embedding_size]`, norms float64 `[n]`).
    """
    pairs = ((block.astype(dtype), norms) for block, norms in blocks)
    return tuple(map(np.concatenate, zip(*pairs, strict=True)))
