"""Embeddings by name: of images, as they are read, or saved ones."""

import io

import numpy as np

from plsc_tf.evaluation import lists
from plsc_tf.evaluation.pair_embeddings import embed_batch
from plsc_tf.jobs.evaluate import decoding
from plsc_tf.storage import files

# Rows of saved embeddings that are handed on at a time.
ROWS = 2048


class Pictures:
    """Embeds images by the names of their files.

    Args:
        embed: callable, uint8 [n, height, width, 3] -> [n, embedding_size].
        framing: the `Preprocessing` whose `evaluate` frames the images.
        batch_size: images per step over all replicas.
        flip: whether to add the embeddings of mirror images.
    """

    def __init__(self, embed, framing, batch_size, flip=True):
        self._embed, self._framing = embed, framing
        self._batch_size, self._flip = batch_size, flip

    def blocks(self, names, folder, points=None):
        """Yields (embeddings, norms) of consecutive images, block by block.

        Args:
            names: of the files, below `folder` or absolute.
            folder: path.
            points: as for `rows`.

        Raises:
            ValueError: an image cannot be read or decoded; says which.
        """
        paths = [files.join(folder, name) for name in names]
        try:
            for _, *block in self.rows(paths, points):
                yield tuple(block)
        except decoding.PictureError as error:
            raise ValueError(
                f"{error} Is {folder or '.'} the folder that the names are below? "
                "picture_dir says another one."
            ) from error

    def rows(self, paths, points=None, skipped=None):
        """Yields (rows, embeddings, norms) of images, a batch at a time.

        The arguments and errors are those of `decoding.blocks`. Embeddings
        are float64, and the sum of both passes with `flip`; the norms are the mean of
        both.
        """
        blocks = decoding.blocks(
            paths, self._framing, self._batch_size, points, skipped
        )
        for rows, pixels in self._batches(blocks):
            yield rows, *embed_batch(self._embed, pixels, self._flip)

    def _batches(self, blocks):
        for rows, pixels in blocks:
            # The rest goes with the last batch, which `embed` fills up: a batch of
            # another size would be traced again.
            count = len(rows) // self._batch_size
            places = self._batch_size * np.arange(1, count)
            if len(rows):
                yield from zip(
                    np.split(rows, places), np.split(pixels, places), strict=True
                )


class Saved:
    """Embeddings of a .npy file, by their names.

    Args:
        path: of the .npy file; a local one is read as it is needed.
        names_path: of the list of names; "": default it, or row numbers.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not [n, embedding_size] numbers, or as many names.
    """

    def __init__(self, path, names_path=""):
        self.path = path
        self._matrix = _load(path)
        if self._matrix.ndim != 2 or self._matrix.dtype.kind != "f":
            raise ValueError(
                f"{path} must hold floats [n, embedding_size]. Received: "
                f"{self._matrix.dtype}, shape {self._matrix.shape}."
            )
        default = f"{path.removesuffix('.npy')}.txt"
        if not names_path and files.exists(default):
            names_path = default
        if not names_path:
            self._rows = None
            return
        names = lists.read_names(files.read(names_path), names_path)
        if len(names) != len(self._matrix):
            raise ValueError(
                f"{names_path} must name the {len(self._matrix)} rows of {path}. "
                f"Received: {len(names)} names."
            )
        self._rows = {name: row for row, name in enumerate(names)}

    def blocks(self, names, folder, points=None):
        """As `Pictures.blocks`; folder and points mean nothing here."""
        rows = self._find(names)
        for start in range(0, len(rows), ROWS):
            block = self._matrix[rows[start : start + ROWS]].astype(np.float64)
            yield block, np.linalg.norm(block, axis=1)

    def _find(self, names):
        try:
            if self._rows is not None:
                return np.array([self._rows[name] for name in names], np.int64)
            rows = np.array([int(name) for name in names], np.int64)
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"{error} is no name of a row of {self.path}. Give embedding_names; "
                "without it, rows are named by their numbers, from 0."
            ) from error
        if rows.min() < 0 or rows.max() >= len(self._matrix):
            raise ValueError(
                f"{self.path} has the rows 0 to {len(self._matrix) - 1}. Received: "
                f"{rows.min()} to {rows.max()}."
            )
        return rows


def gathered(blocks, dtype=np.float32):
    """(embeddings, norms) of all blocks: [n, embedding_size], float64 [n]."""
    embeddings, norms = [], []
    for block, lengths in blocks:
        embeddings.append(block.astype(dtype))
        norms.append(lengths)
    return np.concatenate(embeddings), np.concatenate(norms)


def _load(path):
    if not files.exists(path):
        raise FileNotFoundError(f"There are no embeddings {path!r}.")
    try:
        if files.is_local(path):
            return np.load(path, mmap_mode="r", allow_pickle=False)
        return np.load(io.BytesIO(files.read(path)), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no .npy file of numbers: {error}") from error
