"""The index beside a record file, read from its bytes and checked against the file."""

from __future__ import annotations

import io
import tokenize

import numpy as np

# What numpy raises on headers that are none.
_FAULTS = (
    ValueError,
    SyntaxError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    tokenize.TokenError,
)
# What may lie behind the last record: a checksum, or the rest of a line.
_LARGEST_REST = 32


def parse_index(
    data: bytes, path: str, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Reads an index: a .npy file of int64 [records, 3].

    No memory is taken that its bytes do not fill.

    Args:
        data: the bytes of the index.
        path: of the index, for the error.
        size: bytes of the record file.

    Returns:
        first bytes, lengths and labels of the records, int64 [n] each; None where it
        is the index of another file.

    Raises:
        ValueError: it is no index.
    """
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"version {version}")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    except _FAULTS as error:
        raise ValueError(
            f"{path} is no index: its first {min(len(data), 128)} bytes are no .npy "
            f"header ({type(error).__name__}: {str(error)[:100]}). Remove it."
        ) from error
    start = stream.tell()
    if (
        dtype != np.dtype("<i8")
        or by_columns
        or len(shape) != 2
        or shape[1] != 3
        or 24 * shape[0] != len(data) - start
    ):
        raise ValueError(
            f"{path} is no index: expected int64 [records, 3] of {len(data) - start} "
            f"bytes. Received: {dtype} {list(shape)[:4]}. Remove it."
        )
    begins, lengths, labels = np.frombuffer(data, "<i8", offset=start).reshape(shape).T
    # Each by itself: a sum could overflow.
    for column in (begins, lengths):
        if len(column) and not (0 <= column.min() and column.max() <= size):
            return None
    rest = size - int((begins + lengths).max(initial=0))
    return (begins, lengths, labels) if 0 <= rest <= _LARGEST_REST else None
