"""idx files of unsigned bytes, MNIST's format, gzipped or not.

Two zero bytes, the type (8: unsigned bytes), the rank, one big-endian 32-bit size per
dimension, then the values. Source: LeCun's page of the MNIST database.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib

import numpy as np

from plsc_tf.storage import files

_UNSIGNED_BYTES = 8
# Deflate makes at most 1,032 bytes of one (zlib's documentation).
_LARGEST_RATIO = 1032


def read_idx_file(path: str, rank: int) -> np.ndarray:
    """Reads an idx file; takes no more memory than the file can fill.

    Args:
        path: of the file; .gz is unpacked.
        rank: number of dimensions it must have.

    Returns:
        uint8 of the shape in its header.

    Raises:
        ValueError: it is not such a file, is cut off, or longer than its header says;
            with file and byte.
    """
    content = files.read(path)
    stream, limit = io.BytesIO(content), len(content)
    if path.endswith(".gz"):
        stream, limit = gzip.GzipFile(fileobj=stream), limit * _LARGEST_RATIO
    try:
        header = stream.read(4 + 4 * rank)
        shape = _shape(path, header, rank)
        total = len(header) + math.prod(shape)
        says = f"its header says {' x '.join(map(str, shape))}, {total} bytes"
        if total > limit:
            raise _fault(
                path,
                f"{says}, but there can be at most {limit} in a file of "
                f"{len(content)} bytes",
            )
        # One byte more than expected shows that there is too much.
        data = stream.read(total - len(header) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _fault(path, f"{error}, within {len(content)} bytes") from error
    received = len(header) + len(data)
    if received != total:
        received = "more" if received > total else received
        raise _fault(path, f"{says}; received {received}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _shape(path: str, header: bytes, rank: int) -> tuple[int, ...]:
    if len(header) < 4 + 4 * rank:
        raise _fault(path, f"it ends at byte {len(header)}, within the header")
    expected = bytes([0, 0, _UNSIGNED_BYTES, rank])
    if header[:4] != expected:
        raise _fault(
            path, f"it starts with {header[:4].hex()}, expected {expected.hex()}"
        )
    return struct.unpack(f">{rank}I", header[4:])


def _fault(path: str, problem: str) -> ValueError:
    return ValueError(f"{path} is no idx file or is cut off: {problem}. Copy it again.")
