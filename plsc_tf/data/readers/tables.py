"""Reads tables of images: Parquet files, and Arrow files of Hugging Face's datasets.

`datasets.Dataset.save_to_disk` writes Arrow files, and its hub holds Parquet files.
Both have one column of images and one of labels.
"""

from collections.abc import Sequence

import numpy as np

from plsc_tf.data.readers.packed import Records, packed_source
from plsc_tf.data.source import IndexedSource
from plsc_tf.requirements import require, require_package
from plsc_tf.storage import local

_IMAGES, _LABELS = ("image", "img", "jpg", "png"), ("label", "labels", "cls")


def tables(names: Sequence[str], **numbers: int | None) -> IndexedSource:
    """Reads the images of Parquet or Arrow files.

    Args:
        names: paths of the files, on a local disk. The column of images is called
            image, img, jpg or png, and holds encoded images or {"bytes", ...}; the
            column of labels is called label, labels or cls, and holds whole numbers.
        **numbers: num_classes and labels_offset of `packed_source`.

    Raises:
        ImportError: pyarrow is missing.
        ValueError: a file is damaged or has other columns.
    """
    records = Tables(names)
    numbers["labels"] = records.labels
    return packed_source("hugging_face", records, _image, **numbers)


class Tables(Records):
    """The rows of Parquet or Arrow files, group by group.

    An image of a Parquet file is read with its whole row group, often 100 images.

    Attributes:
        labels: int64 `[rows]`.
    """

    def __init__(self, names: Sequence[str]):
        pyarrow = require_package("pyarrow", "arrow", "The data set hugging_face")
        self._groups, labels, counts = [], [], []
        for name in names:
            try:
                local.require_file(name)
                file = _Parquet(name) if name.endswith(".parquet") else _Arrow(name)
                column = _column(file, _LABELS, pyarrow.types.is_integer)
                file.image = _column(file, _IMAGES, _holds_images)
                groups = [file.read(group, column) for group in range(file.count)]
                for group, values in enumerate(groups):
                    require(not values.null_count, f"{name} has rows without labels")
                    labels.append(values.to_numpy().astype(np.int64))
                    self._groups.append((file, group))
                counts.append(sum(map(len, groups)))
            except (pyarrow.ArrowException, OSError) as error:
                rule = f"{name} must be a sound Parquet or Arrow file: {error}"
                raise ValueError(f"{rule}. Copy it again.") from error
        super().__init__(names, counts)
        self._starts = np.cumsum([0, *map(len, labels)])
        self.labels = np.concatenate([np.zeros(0, np.int64), *labels])

    def read(self, indices: np.ndarray) -> list:
        """See `Records.read`; returns values for `_image`."""
        images = [None] * len(indices)
        groups = np.searchsorted(self._starts, indices, side="right") - 1
        for group in np.unique(groups):
            file, number = self._groups[group]
            column = file.read(number, file.image)
            for place in np.flatnonzero(groups == group):
                images[place] = column[indices[place] - self._starts[group]].as_py()
        return images


def _image(value):
    """Returns the bytes of an image, which may be in {"bytes": ...}."""
    image = value.get("bytes") if isinstance(value, dict) else value
    require(image, "it has no image", "Save the data set with its images inside")
    return image


class _Parquet:
    """A Parquet file; each read opens it, because threads must not share a reader."""

    def __init__(self, name):
        import pyarrow.parquet

        self._open, self.name = pyarrow.parquet.ParquetFile, name
        with self._open(name) as file:
            self._metadata, self.schema = file.metadata, file.schema_arrow
        self.count = self._metadata.num_row_groups

    def read(self, group, column):
        with self._open(self.name, metadata=self._metadata) as file:
            return file.read_row_group(group, columns=[column]).column(column)


class _Arrow:
    """An Arrow file in the format of streams, which `datasets` writes; mapped."""

    def __init__(self, name):
        import pyarrow

        self.name = name
        table = pyarrow.ipc.open_stream(pyarrow.memory_map(name)).read_all()
        table.validate(full=True)  # Otherwise, images could contain any memory.
        self.schema, self._batches = table.schema, table.to_batches()
        self.count = len(self._batches)

    def read(self, group, column):
        return self._batches[group].column(column)


def _column(file, wanted, fits):
    """Returns the name of the first of the wanted columns that has a fitting type."""
    for field in file.schema:
        if field.name in wanted and fits(field.type):
            return field.name
    columns = ", ".join(f"{field.name} ({field.type})"[:80] for field in file.schema)
    rule = f"{file.name} must have a column {' or '.join(wanted)}"
    kind = "whole numbers" if wanted == _LABELS else "encoded images"
    raise ValueError(f"{rule} of {kind}. Received: {columns:.500}. Rename the column.")


def _holds_images(kind):
    import pyarrow.types as types

    if types.is_struct(kind):
        return any(field.name == "bytes" for field in kind)
    return types.is_binary(kind) or types.is_large_binary(kind)
