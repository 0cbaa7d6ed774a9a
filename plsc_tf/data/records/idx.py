"""idx files of unsigned bytes, MNIST's format, gzipped or not.

Two zero bytes, the type (8: unsigned bytes), the rank, one big-endian 32-bit size per
dimension, then the values. Source: LeCun's page of the MNIST database.
"""

from __future__ import annotations

import math
import struct
import zlib

import numpy as np

from plsc_tf.storage import files

_UNSIGNED_BYTES = 8
_CHUNK_BYTES = 1 << 20
# Deflate makes at most 1,032 bytes of one (zlib's documentation).
_LARGEST_RATIO = 1032
_GZIP = 16 + zlib.MAX_WBITS


def read_idx_file(path: str, rank: int) -> np.ndarray:
    """Reads an idx file; no more memory is taken than the file can fill.

    Args:
        path: of the file; .gz is unpacked while it is read.
        rank: number of dimensions it must have.

    Returns:
        uint8 of the shape in its header.

    Raises:
        ValueError: it is no such file, is cut off, or holds more than its header says;
            with file and byte.
    """
    size = files.size(path)
    packed = path.endswith(".gz")
    header_bytes = 4 + 4 * rank
    chunks = files.open_read(path, _CHUNK_BYTES)
    if packed:
        chunks = _unpacked(chunks, path)
    data = _take(chunks, bytearray(), header_bytes)
    shape = _shape(path, bytes(data[:header_bytes]), rank)
    total = header_bytes + math.prod(shape)
    limit = size * _LARGEST_RATIO if packed else size
    if total > limit:
        raise _fault(
            path,
            f"its header says {_text(shape)}, {total} bytes, but there can be at "
            f"most {limit} in a file of {size} bytes",
        )
    # One byte more than expected tells that there is too much.
    data = _take(chunks, data, total + 1)
    if len(data) != total:
        received = "more" if len(data) > total else str(len(data))
        raise _fault(
            path, f"its header says {_text(shape)}, {total} bytes; received {received}"
        )
    return np.frombuffer(data, np.uint8, offset=header_bytes).reshape(shape)


def _shape(path: str, header: bytes, rank: int) -> tuple[int, ...]:
    if len(header) < 4 + 4 * rank:
        raise _fault(path, f"it ends at byte {len(header)}, within the header")
    expected = bytes([0, 0, _UNSIGNED_BYTES, rank])
    if header[:4] != expected:
        raise _fault(
            path, f"it starts with {header[:4].hex()}, expected {expected.hex()}"
        )
    return struct.unpack(f">{rank}I", header[4:])


def _unpacked(chunks, path: str):
    """Yields the contents of a gzip file in chunks, whatever its ratio is."""
    unpacker, position = zlib.decompressobj(_GZIP), 0
    for chunk in chunks:
        position += len(chunk)
        try:
            yield unpacker.decompress(chunk, _CHUNK_BYTES)
            while unpacker.unconsumed_tail:
                yield unpacker.decompress(unpacker.unconsumed_tail, _CHUNK_BYTES)
        except zlib.error as error:
            raise _fault(path, f"{error}, before byte {position}") from error
    if not unpacker.eof:
        raise _fault(path, f"the gzip stream does not end before byte {position}")


def _take(chunks, data: bytearray, count: int) -> bytearray:
    """Appends chunks until there are at least `count` bytes, or no more chunks."""
    while len(data) < count:
        chunk = next(chunks, None)
        if chunk is None:
            break
        data += chunk
    return data


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _fault(path: str, problem: str) -> ValueError:
    return ValueError(f"{path} is no idx file or is cut off: {problem}. Copy it again.")
