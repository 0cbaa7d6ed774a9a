"""Records that lie one after the other in files, read in any order."""

from __future__ import annotations

import array
import collections
import hashlib
import json
import threading

import numpy as np

from plsc_tf.data.paths import INDEX_ENDING
from plsc_tf.data.records.index_table import parse_index
from plsc_tf.storage import files, oss

# Files that stay open at the same time.
_MOST_OPEN = 256


class RecordIndex:
    """Where records begin and how long they are; 12 bytes for each.

    Args:
        files: paths of the files.
        counts: records of each file.
        begins: int64 [n], first byte of each record's data within its file.
        lengths: int32 or int64 [n], bytes of its data.
    """

    def __init__(self, files, counts, begins, lengths):
        self.files = list(files)
        self.begins = np.asarray(begins, np.int64)
        self.lengths = np.asarray(lengths)
        self._firsts = np.cumsum([0, *counts])

    def __len__(self) -> int:
        return len(self.begins)

    def stamp(self) -> str:
        """A text that changes when a file does: their sizes and times."""
        stats = [(name, files.stat(name)) for name in self.files]
        return json.dumps([(oss.masked(n), s.size, s.modified_ns) for n, s in stats])

    def contents(self) -> str:
        """A text that is the same for copies of the files: the records' lengths."""
        return hashlib.sha256(memoryview(self.lengths)).hexdigest()

    def place(self, index: int) -> tuple[int, int]:
        """Returns (number of the file, number of the record within it)."""
        file = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return file, int(index - self._firsts[file])

    def files_of(self, indices: np.ndarray) -> np.ndarray:
        """Returns the numbers of the files of `[n]` records."""
        return np.searchsorted(self._firsts, indices, side="right") - 1


class IndexBuilder:
    """Collects places of records, file by file; see `RecordIndex`."""

    def __init__(self):
        self._files, self._counts = [], []
        self._begins, self._lengths = array.array("q"), array.array("q")
        self._labels = array.array("q")

    @property
    def labels(self) -> np.ndarray | None:
        """Labels of all records, int64 [n]; None where a file came without."""
        if len(self._labels) < len(self._begins):
            return None
        return np.frombuffer(self._labels, np.int64)

    def add(self, path: str, begins, lengths, labels=()) -> None:
        """Adds a file: places of its records, and labels where they are known."""
        self._files.append(path)
        self._counts.append(len(begins))
        for known, new in (
            (self._begins, begins),
            (self._lengths, lengths),
            (self._labels, labels),
        ):
            known.frombytes(np.asarray(new, np.int64).tobytes())

    def done(self) -> RecordIndex:
        """Returns the index of all files."""
        lengths = np.frombuffer(self._lengths, np.int64)
        if not len(lengths) or lengths.max() < 2**31:
            lengths = lengths.astype(np.int32)
        begins = np.frombuffer(self._begins, np.int64)
        return RecordIndex(self._files, self._counts, begins, lengths)


def read_index(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Reads the index that `plsc_tf.convert` wrote beside a file.

    Returns:
        first bytes, lengths and labels of the records, int64 [n] each; None where
        there is no index, or one of another file.
    """
    name = path + INDEX_ENDING
    if not files.exists(name):
        return None
    return parse_index(files.read(name), name, files.size(path))


class PackedFiles:
    """Reads records by their numbers; for many threads at a time.

    Args:
        index: the `RecordIndex`.
        after: bytes behind a record's data that are wanted too.
    """

    def __init__(self, index: RecordIndex, *, after: int = 0):
        self.index = index
        self._after = after
        self._handles = _Handles()

    def read(self, indices: np.ndarray) -> list[bytes]:
        """Returns the bytes of these records.

        Raises:
            EOFError: a file ends within the record; names the record.
            OSError: a file cannot be read.
        """
        index = self.index
        numbers = index.files_of(indices)
        begins = index.begins[indices]
        lengths = index.lengths[indices] + self._after
        reads = {
            f: self._handles.of(index.files[f]) for f in np.unique(numbers).tolist()
        }
        places = zip(numbers.tolist(), begins.tolist(), lengths.tolist(), strict=True)
        found = [reads[file](begin, length) for file, begin, length in places]
        for k, data in enumerate(found):
            if len(data) < lengths[k]:
                file, number = index.place(int(indices[k]))
                raise EOFError(
                    f"{index.files[file]} ends within record {number}, which needs "
                    f"{lengths[k]} bytes at byte {begins[k]}. Has the file changed "
                    "since it was opened?"
                )
        return found


class _Handles:
    """Open files, the least used of them closed when there are many."""

    def __init__(self):
        self._lock = threading.Lock()
        self._open = collections.OrderedDict()

    def of(self, path):
        """The function (begin, length) -> bytes that reads a file."""
        with self._lock:
            handle = self._open.pop(path, None) or files.open_random(path)
            self._open[path] = handle
            while len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
        return handle.read
