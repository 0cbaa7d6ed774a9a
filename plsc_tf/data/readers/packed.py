"""Random access to records that are stored one after another in files."""

import contextlib
import functools
import hashlib
import itertools
import json
import operator
import os
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data import paths
from plsc_tf.data.source import IndexedSource
from plsc_tf.requirements import require
from plsc_tf.storage import arrays, files

# Maximum number of files kept open.
_MOST_OPEN = 256
# Maximum number of bytes after the last record's data: a checksum, or the rest of a
# line.
_LARGEST_REST = 32
# Records that tell data sets apart, and about how many bytes they may have together.
_SAMPLED, _SAMPLED_BYTES = 256, 1 << 26


class RandomAccessFile:
    """Reads ranges of a file; can be used from any thread.

    Attributes:
        path: path of the file, on any store.
        size: size of the file in bytes.
    """

    def __init__(self, path: str):
        self.path = path
        self.size = files.size(path)
        self._file = files.open_random(path)

    def read(self, position: int, length: int) -> bytes:
        """Returns `length` bytes from `position`, fewer at the end of the file."""
        return self._file.read(position, max(0, min(length, self.size - position)))


class Records:
    """Records that a subclass reads by number with `read`, as `PackedFiles` does.

    Args:
        names: paths of the files that hold the records.
        counts: number of records in each file.
    """

    def __init__(self, names: Sequence[str], counts: Sequence[int]):
        self._names, self._firsts = list(names), np.cumsum([0, *counts])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def stamp(self) -> str:
        """Returns a string of the files' paths, sizes and modification times."""
        names = [os.path.realpath(n) if files.is_local(n) else n for n in self._names]
        stats = [(name, files.stat(name)) for name in names]
        return json.dumps([(n, s.size, s.modified_ns) for n, s in stats])

    def contents(self) -> str:
        """Returns a string that copies of the files share."""
        return json.dumps([files.size(name) for name in self._names])

    @functools.cached_property
    def sample(self) -> str:
        """A digest of some records: other labels need not change any length."""
        bytes_each = sum(map(files.size, self._names)) / max(len(self), 1)
        count = min(_SAMPLED, len(self), 1 + int(_SAMPLED_BYTES / (1 + bytes_each)))
        digest = hashlib.sha256()
        for index in np.linspace(0, len(self) - 1, count).astype(np.int64):
            digest.update(self.read(index[np.newaxis])[0] or b"")
        return digest.hexdigest()

    def describe(self, index: int) -> str:
        """Names a record by its file and its number within the file."""
        file = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return f"record {index - self._firsts[file]} of {self._names[file]}"

    def read(self, indices: np.ndarray) -> list:
        """Returns the selected records; can be called from any thread."""
        raise NotImplementedError


class PackedFiles(Records):
    """Reads records by number; its tables take 12 to 16 bytes per record.

    Args:
        names: paths of the files.
        counts: see `Records`.
        begins: int64 `[n]`, position of each record's data in its file.
        lengths: int32 or int64 `[n]`, length of each record's data in bytes.
        after: number of bytes after a record's data to read as well.
    """

    def __init__(
        self,
        names: Sequence[str],
        counts: Sequence[int],
        begins: np.ndarray,
        lengths: np.ndarray,
        *,
        after: int = 0,
    ):
        super().__init__(names, counts)
        self._begins, self._lengths, self._after = begins, lengths, after
        # An evicted file closes when no thread uses it anymore.
        self._open = functools.lru_cache(_MOST_OPEN)(files.open_random)

    def contents(self) -> str:
        """Returns digests of the records; copies of the files share them."""
        return hashlib.sha256(memoryview(self._lengths)).hexdigest() + self.sample

    def largest(self, indices: np.ndarray) -> int:
        """Returns the size of the largest of the selected records, in bytes."""
        return self._lengths[indices].max()

    def read(self, indices: np.ndarray) -> list[bytes]:
        """Returns the bytes of the selected records; can be called from any thread.

        Raises:
            EOFError: a file ends within a record; the message names the record.
            OSError: a file cannot be read.
        """
        numbers = np.searchsorted(self._firsts, indices, side="right") - 1
        begins = self._begins[indices].tolist()
        lengths = (self._lengths[indices] + self._after).tolist()
        read = {n: self._open(self._names[n]).read for n in set(numbers.tolist())}
        # `map` holds the interpreter's lock for less time than a loop.
        functions = map(read.get, numbers.tolist())
        records = list(map(operator.call, functions, begins, lengths))
        if list(map(len, records)) != lengths:
            short = [len(r) < n for r, n in zip(records, lengths, strict=True)]
            place = short.index(True)
            raise EOFError(
                f"The file ends within {self.describe(indices[place])}, which begins "
                f"at byte {begins[place]}. Has it changed since it was opened?"
            )
        return records


def packed_source(
    name: str,
    packed: Records,
    unpack: Callable | None = None,
    *,
    parse: Callable | None = None,
    labeled: bool = False,
    labels: np.ndarray | None = None,
    num_classes: int | None = None,
    labels_offset: int = 0,
) -> IndexedSource:
    """Creates a source from records.

    Args:
        name: name for messages.
        packed: reads the records.
        unpack: function of a record that returns the image's bytes or, if `labeled`,
            (image, label); or the argument of `parse`. Raises ValueError if the record
            is damaged; the error then names it. It holds the interpreter's lock, so it
            should do little. None if records are images.
        parse: function that maps these bytes, strings `[block]`, to (images, labels);
            runs inside tf.data.
        labeled: whether the examples get the labels that `unpack` returns.
        labels: int64 `[num_examples]`, or None if they are in the records.
        num_classes: number of classes; None is the largest of `labels` + 1, or unknown.
        labels_offset: number to subtract from each label.
    """
    types = (tf.string, tf.int64) if labeled else (tf.string,)

    def unpack_one(record, index):
        try:
            return unpack(record)
        except ValueError as error:
            raise ValueError(f"{packed.describe(index)}: {error}") from error

    def read(indices):
        found = packed.read(indices)
        if unpack is not None:
            found = list(map(unpack_one, found, indices.tolist()))
        strings, *numbers = zip(*found, strict=True) if labeled else (found,)
        offsets = [np.array(column, np.int64) - labels_offset for column in numbers]
        return [np.array(strings, object), *offsets]

    def fetch(indices):
        # Outside graphs, a single result is not in a list.
        found = tf.nest.flatten(tf.numpy_function(read, [indices], types, False))
        strings, *numbers = (tf.ensure_shape(column, [None]) for column in found)
        if parse is not None:
            images, found = parse(strings)
            return images, found - labels_offset
        return (strings, *numbers) if labeled else strings

    source = IndexedSource(
        name,
        None if labels is None else labels - labels_offset,
        fetch,
        num_classes=num_classes,
        num_examples=len(packed),
        describe=packed.describe,
        stamp=lambda: f"{labels_offset} {packed.stamp()}",
        contents=lambda: f"{labels_offset} {packed.contents()}",
    )
    source.labels_in_records = labeled
    source.largest = getattr(packed, "largest", None)
    return source


def find_packed(
    name: str, names: Sequence[str], find: Callable, columns=3, after=0, indexed=True
) -> tuple[PackedFiles, np.ndarray | None]:
    """Locates the records of files, from each file's index or the file itself.

    Args:
        name: name for messages.
        names: paths of the files.
        find: function of a path that yields the position and the length of the data of
            each record and, if known, its label; used for files without an index.
        columns: how many numbers it yields for each record.
        after: see `PackedFiles`.
        indexed: whether to read indexes.

    Returns:
        The records, and their labels, int64 `[n]`, or None if unknown.

    Raises:
        ValueError: there are no records.
    """
    tables = [(indexed and read_index(p)) or _located(p, find, columns) for p in names]
    counts = [len(table[0]) for table in tables]
    rule, shown = f"{name} holds no records", ", ".join(names[:3])
    advice = "Write the files again, or choose others"
    require(any(counts), rule, advice, files=shown or "none")
    begins, lengths, *labels = map(np.concatenate, zip(*tables, strict=False))
    if lengths.max() < 2**31:
        lengths = lengths.astype(np.int32)
    packed = PackedFiles(names, counts, begins, lengths, after=after)
    return packed, labels[0] if labels else None


def _located(path, find, columns):
    numbers = itertools.chain.from_iterable(find(path))
    return np.fromiter(numbers, np.int64).reshape(-1, columns).T.copy()


def has_wrong_index(path: str, find: Callable, columns: int, labels: Sequence) -> bool:
    """Returns whether a file has an index that differs from it, or that of a bad file.

    Training would follow it.

    Args:
        path, find, columns: as for `find_packed`.
        labels: those of the records, in order; None where they cannot be read.
    """
    with contextlib.suppress(ValueError):
        index = read_index(path, old=True)  # a copy may make it look newer
        if index is None:
            return False
        pairs = zip(labels, index[2].tolist(), strict=False)
        same = all(label in (None, listed) for label, listed in pairs)
        found = _located(path, find, columns)
        return not (same and np.array_equal(index[:columns], found))
    return True


def read_index(path: str, old: bool = False) -> tuple[np.ndarray, ...] | None:
    """Reads the index that `plsc_tf.convert` wrote for a file of records.

    The index is a .npy file of int64 `[records, 3]`.

    Args:
        path: path of the file of records.
        old: whether to read an index that is older than the file.

    Returns:
        The positions, lengths and labels of the records, int64 `[n]` each; None if
        there is no index, if it does not match the file, or if it is older: somebody
        may have changed labels in the file.

    Raises:
        ValueError: the file is not an index.
    """
    name = path + paths.INDEX_ENDING
    if not files.exists(name):
        return None
    file = files.stat(path)
    if not old and files.stat(name).modified_ns < file.modified_ns:
        logging.warning("%s is older than its file, so it is not used", name)
        return None
    table, size = arrays.read(name), file.size
    good = table.dtype == np.int64 and table.ndim == 2 and table.shape[1] == 3
    rule = f"{name} is not an index: expected a .npy file of int64 [records, 3]"
    require(good, rule, "Delete the file", dtype=table.dtype, shape=table.shape)
    begins, lengths, labels = table.T.copy()
    # Check the columns one by one, because their sum could overflow.
    for column in (begins, lengths):
        if len(column) and not (0 <= column.min() and column.max() <= size):
            return None
    rest = size - int((begins + lengths).max(initial=0))
    # If each record were the whole file, a block of them would fill the memory.
    fits = 0 <= rest <= _LARGEST_REST and lengths.sum(dtype=np.float64) <= size
    return (begins, lengths, labels) if fits else None


def index_header(rows: int) -> bytes:
    """Returns the header of a .npy file of int64 `[rows, 3]`; its length is fixed."""
    return arrays.npy_header((rows, 3), "<i8")
