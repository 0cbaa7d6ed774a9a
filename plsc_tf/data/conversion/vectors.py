"""Many small buffers in one call, many files at once, the next item meanwhile."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
from collections.abc import Iterator, Sequence

import numpy as np

from plsc_tf.storage import local

# Linux takes so many buffers at a time.
_AT_ONCE = 1024
_SYNC_THREADS = 8
_READ_BYTES = 1 << 24
_SMALL_BYTES = local.WRITE_BYTES * 5 // 4


def write_all(file: int, pieces: Sequence) -> None:
    """Writes buffers one after the other at the file's position.

    Args:
        file: descriptor.
        pieces: bytes-like objects.

    Raises:
        OSError: such as ENOSPC; a part may have been written.
    """
    size = sum(map(len, pieces))
    if size <= _SMALL_BYTES and len(pieces) <= _AT_ONCE:
        _write_group(file, pieces, size)
        return
    group, size = [], 0
    for piece in pieces:
        group.append(piece)
        size += len(piece)
        if size >= local.WRITE_BYTES or len(group) == _AT_ONCE:
            _write_group(file, group, size)
            group, size = [], 0
    if group:
        _write_group(file, group, size)


def sync_all(files: Sequence[int]) -> None:
    """Flushes files to the disk, several at once."""
    with concurrent.futures.ThreadPoolExecutor(_SYNC_THREADS) as pool:
        list(pool.map(os.fsync, files))


def read_into(file, view: memoryview) -> None:
    """Fills a buffer from an unbuffered file's position.

    Raises:
        OSError: the file ends before.
    """
    done = 0
    while done < len(view):
        count = file.readinto(view[done : done + _READ_BYTES])
        if not count:
            raise OSError(f"{file.name} ends at byte {done}; expected {len(view)}.")
        done += count


def byte_spans(lengths: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of rows of about so many bytes each."""
    begin, parts = 0, np.cumsum(lengths) // limit
    for end in (*(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(lengths)):
        if end > begin:
            yield begin, end
        begin = end


def ahead(items: Iterator) -> Iterator:
    """Yields the same items; the next one is made in a thread meanwhile."""
    end = object()
    with contextlib.closing(items), concurrent.futures.ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield item


def _write_group(file, group, size):
    missing = size - os.writev(file, group)
    view = memoryview(b"".join(group))[-missing:] if missing else b""
    while view:
        view = view[os.write(file, view) :]
