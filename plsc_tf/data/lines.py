"""Lines of text files of any size, in bounded memory, and names of any bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from plsc_tf.storage import files

# No path is longer than 4,096 bytes.
LONGEST_LINE = 1 << 16
_CHUNK_BYTES = 1 << 20


def read_lines(path: str, longest: int = LONGEST_LINE) -> Iterator[tuple[int, bytes]]:
    """Yields (number from 1, line without its end) of a text file.

    A file without line ends, an image for example, is not read as one line into memory.

    Args:
        path: of the file, on any store.
        longest: bytes of the longest line.

    Raises:
        ValueError: a longer line; with its number.
    """
    number, rest = 0, b""
    for chunk in files.open_read(path, _CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            number += 1
            if len(line) > longest:
                raise _too_long(path, number, line, longest)
            yield number, line
        if len(rest) > longest:
            raise _too_long(path, number + 1, rest, longest)
    if rest:
        yield number + 1, rest


def file_exists(path: bytes) -> bool:
    """Whether there is a file of this name, which need not be UTF-8 on local disks."""
    try:
        return files.exists(os.fsdecode(path))
    except UnicodeEncodeError:
        return False


def _too_long(path: str, number: int, line: bytes, longest: int) -> ValueError:
    return ValueError(
        f"{path}, line {number}: expected a line of text of at most {longest} bytes. "
        f"Received: {line[:60]!r}... Is this the right file?"
    )
