"""Reads LMDB files in the layout of Vec2Face's data sets (HSFace, VFace, WebFace4M).

The values of `__keys__` and `__classnum__` are the keys of the images and the number of
classes; each other value is a list that begins with the encoded image and ends with its
label. All are packed by msgpack.
"""

import os
import weakref
from collections.abc import Sequence

import numpy as np

from plsc_tf.data.readers.packed import Records, packed_source
from plsc_tf.data.source import IndexedSource
from plsc_tf.requirements import prefix_errors, require, require_package
from plsc_tf.storage import local

_ADVICE = "Copy the LMDB file again"
# LMDB does not write the last pages if a transaction has freed them again.
_UNWRITTEN = 1 << 16
# Addresses to map beyond the end of the file, where reading ends the process: an image
# of a forged length, which has 32 bits, would otherwise contain the process's memory.
_BEYOND = 1 << 34
# LMDB refuses to open a file twice in a process.
_OPEN: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


def lmdb_source(names: Sequence[str], **numbers: int | None) -> IndexedSource:
    """Reads an LMDB file; labels are read with the images.

    Args:
        names: its path, on a local disk: a file, or a folder with data.mdb.
        **numbers: num_classes, by default that of the file, and labels_offset of
            `packed_source`.

    Raises:
        ImportError: lmdb or msgpack is missing.
        ValueError: the file is damaged or has another layout, or there are several.
    """
    rule = "The data set lmdb is one file or folder"
    require(len(names) == 1, rule, "Choose one with train_files", files=len(names))
    records = LmdbRecords(names[0])
    numbers["num_classes"] = numbers.get("num_classes") or records.num_classes
    return packed_source(names[0], records, records.unpack, labeled=True, **numbers)


class LmdbRecords(Records):
    """The records of an LMDB file.

    Attributes:
        num_classes: number of classes, or None if the file does not say.
    """

    def __init__(self, path: str):
        lmdb = require_package("lmdb", "lmdb", "The data set lmdb")
        msgpack = require_package("msgpack", "lmdb", "The data set lmdb")
        self._error, self._unpackb = lmdb.Error, msgpack.unpackb
        place = os.path.realpath(path)
        place = os.path.join(place, "data.mdb") if os.path.isdir(place) else place
        local.require_file(place)
        # Images are read in random order.
        options = {"readahead": False, "map_size": os.path.getsize(place) + _BEYOND}
        with prefix_errors(path, lmdb.Error, advice=_ADVICE):
            self._environment = _OPEN.get(place) or lmdb.open(
                place, subdir=False, readonly=True, lock=False, **options
            )
        _OPEN[place] = self._environment
        # Reading beyond the end of a mapped file ends the process.
        size, pages = os.path.getsize(place), self._environment.info()["last_pgno"]
        complete = size + _UNWRITTEN >= pages * self._environment.stat()["psize"]
        require(complete, f"{path} is cut off", _ADVICE, bytes=size)
        keys, count = self._get([b"__keys__", b"__classnum__"], path)
        self._keys = self._decoded(keys, f"__keys__ of {path}", list)
        self.num_classes = count and self._decoded(count, f"Classes of {path}", int)
        require({*map(type, self._keys)} <= {bytes}, f"Keys of {path} must be bytes")
        # A block of one large record would fill the memory.
        require(len({*self._keys}) == len(self._keys), f"{path} has a key twice")
        super().__init__([path], [len(self._keys)])

    def contents(self) -> str:
        """See `Records.contents`."""
        return super().contents() + self.sample

    def read(self, indices: np.ndarray) -> list[bytes]:
        """See `Records.read`."""
        return self._get([self._keys[k] for k in indices.tolist()], self._names[0])

    def unpack(self, value: bytes) -> tuple[bytes, int]:
        """Returns (encoded image, label) of a record; raises ValueError if damaged."""
        fields = self._decoded(value, "its value", list)
        ends = [type(fields[place]) for place in (0, -1)] if fields else []
        rule = "expected a list, first an image and last a label"
        require(ends == [bytes, int] and abs(fields[-1]) < 2**63, rule, types=ends)
        return fields[0], fields[-1]

    def _get(self, keys, path):
        errors = prefix_errors(path, self._error, advice=_ADVICE)
        with errors, self._environment.begin() as transaction:
            return [transaction.get(key) for key in keys]

    def _decoded(self, value, place, kind):
        with prefix_errors(f"{place} is not msgpack"):
            found = value and self._unpackb(value)
        rule = f"{place}: expected a value of msgpack"
        require(isinstance(found, kind), rule, type=type(found).__name__)
        return found
