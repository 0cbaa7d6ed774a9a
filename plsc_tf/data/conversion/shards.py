"""Writes and reads files of records with an index: buckets, and shards with a manifest.

An index is a numpy file of int64 `[records, 3]`: position and length of the record's
payload in bytes, and its label. Arrays called `table` are also int64 `[n, 3]`: length
of the whole record, length of its payload, label.
"""

import concurrent.futures
import json
import mmap
import os
from collections.abc import Iterator, Sequence

import numpy as np

from plsc_tf.data.paths import INDEX_ENDING
from plsc_tf.data.readers.packed import index_header
from plsc_tf.storage import files, local, outputs

MANIFEST = "manifest.json"
_VERSION = 1
_ROW_BYTES = 24


class RecordFile:
    """Appends records to a file, and rows to its index.

    Args:
        path: path of the file; an existing file is truncated to `count` and `size`.
        header_bytes: number of bytes of a record before its payload.
        count: number of records to keep.
        size: number of bytes to keep.
    """

    def __init__(self, path: str, header_bytes: int, count: int = 0, size: int = 0):
        self.path, self.count, self.size = path, count, size
        self._header_bytes = header_bytes
        index_bytes = len(index_header(0)) + _ROW_BYTES * count
        for name, length in ((path, size), (path + INDEX_ENDING, index_bytes)):
            with open(name, "ab", opener=local.without_links) as file:
                file.truncate(length)

    def add(self, records: Sequence, table: np.ndarray) -> None:
        """Appends records, which are buffers."""
        ends = self.size + np.cumsum(table[:, 0])
        rows = np.array(table, "<i8")
        rows[:, 0] = ends - table[:, 0] + self._header_bytes
        with open(self.path, "ab", local.WRITE_BYTES) as file:
            file.writelines(records)
        with open(self.path + INDEX_ENDING, "ab") as index:
            index.write(rows)
        self.count += len(table)
        self.size = int(ends[-1])

    def sync(self) -> None:
        """Flushes file and index to the disk."""
        with open(self.path + INDEX_ENDING, "r+b", buffering=0) as index:
            index.write(index_header(self.count))
            os.fsync(index.fileno())
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())


def read_records(
    path: str, header_bytes: int, order: np.ndarray
) -> Iterator[tuple[list[memoryview], np.ndarray]]:
    """Yields (records, table) of a file in a given order, about a megabyte at a time.

    The file is memory-mapped, so the operating system controls how much of it is in
    memory.

    Args:
        path: path of the file, which must not be empty.
        header_bytes: number of bytes of a record before its payload.
        order: numbers of the records to read, in order.
    """
    table = np.load(path + INDEX_ENDING)
    starts = table[:, 0] - header_bytes
    table[:, 0] = np.diff(starts, append=os.path.getsize(path))
    table, starts = table[order], starts[order]
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_WILLNEED)
    view = memoryview(mapped)
    megabytes = np.cumsum(table[:, 0]) // local.WRITE_BYTES
    for rows in np.split(np.arange(len(table)), np.flatnonzero(np.diff(megabytes)) + 1):
        places = zip(starts[rows].tolist(), table[rows, 0].tolist(), strict=True)
        yield [view[start : start + size] for start, size in places], table[rows]


def write_manifest(
    folder: str, names: Sequence[str], facts: dict, file_list: str = ""
) -> dict:
    """Writes the manifest and, if it has a name, the list of shards to their folder.

    Args:
        folder: folder of the shards and their indices.
        names: names of the shards.
        facts: more entries for the manifest.
        file_list: name of a file that lists the shards; "" writes none.

    Returns:
        The manifest.
    """
    listed = [*names, *(name + INDEX_ENDING for name in names)]
    if file_list:
        lines = "".join(f"{name}\n" for name in names)
        files.write(os.path.join(folder, file_list), lines.encode())
        listed.append(file_list)
    paths = [os.path.join(folder, name) for name in listed]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        # Users compare these with what `sha256sum` prints.
        sums = pool.map(lambda path: files.checksum(path, "sha256"), paths)
        entries = dict(zip(listed, sums, strict=True))
    shards = []
    for name in names:
        index = np.load(os.path.join(folder, name + INDEX_ENDING), mmap_mode="r")
        shards.append({"name": name, "count": len(index), **entries[name]})
    content = {"version": _VERSION, **facts, "shards": shards, "files": entries}
    text = json.dumps(content, indent=1) + "\n"
    files.replace(os.path.join(folder, MANIFEST), text.encode())
    return content


def finished(output_dir: str, fingerprint: str) -> dict | None:
    """Returns the manifest of a finished conversion, or None if there is no output.

    Raises:
        FileExistsError: output_dir contains something else.
    """
    empty = os.path.isdir(output_dir) and not os.listdir(output_dir)
    if empty or not os.path.lexists(output_dir):
        return None
    try:
        content = files.read_json(os.path.join(output_dir, MANIFEST))
    except (FileNotFoundError, ValueError):
        content = {}
    content = content if isinstance(content, dict) else {}
    same = content.get("fingerprint") == fingerprint
    if not same or content.get("mark") != outputs.mark(output_dir):
        other = "another conversion, or a copy" if content else "other files"
        raise FileExistsError(
            f"output_dir {output_dir!r} already exists and contains {other}. Choose "
            "another folder, or remove this one."
        )
    for name, entry in content["files"].items():
        path = os.path.join(output_dir, name)
        if not os.path.isfile(path) or os.path.getsize(path) != entry["bytes"]:
            raise FileExistsError(
                f"output_dir {output_dir!r} contains this conversion, but {name} is "
                "missing or was changed. Remove the folder to convert again."
            )
    return content
