"""An encoder of MXNet RecordIO, written from the published format alone.

dmlc-core, recordio.h: uint32 magic 0xced7230a, uint32 lrecord (upper 3 bits cflag,
lower 29 bits length), data, padded to 4 bytes. cflag 0: whole; 1, 2, 3: first, middle,
last part. Data is cut where the magic number stands at a multiple of 4 bytes, which is
left out. mxnet.recordio: IRHeader = '<IfQQ' flag, label, id, id2; flag > 0: so many
float32 labels follow.
"""

import struct

import numpy as np

MAGIC = 0xCED7230A


def frame(cflag, data):
    """One frame: header, data, padding."""
    padding = b"\0" * (-len(data) % 4)
    return struct.pack("<II", MAGIC, cflag << 29 | len(data)) + data + padding


def record(data):
    """A whole record, in several frames where the data holds the magic number."""
    magic, parts, begin = struct.pack("<I", MAGIC), [], 0
    for place in range(0, len(data) - len(data) % 4, 4):
        if data[place : place + 4] == magic:
            parts.append(data[begin:place])
            begin = place + 4
    parts.append(data[begin:])
    if len(parts) == 1:
        return frame(0, data)
    kinds = [1] + [2] * (len(parts) - 2) + [3]
    return b"".join(frame(kind, part) for kind, part in zip(kinds, parts, strict=True))


def image(label, number, encoded):
    """The data of an image record; a list as label becomes a vector."""
    if isinstance(label, (list, tuple)):
        vector = np.array(label, "<f4").tobytes()
        return struct.pack("<IfQQ", len(label), 0.0, number, 0) + vector + encoded
    return struct.pack("<IfQQ", 0, label, number, 0) + encoded


def write(path, contents, with_idx=True):
    """Writes records in order and an .idx beside them; returns their positions."""
    positions, blob = [], b""
    for data in contents:
        positions.append(len(blob))
        blob += record(data)
    path.write_bytes(blob)
    if with_idx:
        lines = [f"{key}\t{position}\n" for key, position in enumerate(positions)]
        path.with_suffix(".idx").write_text("".join(lines))
    return positions


def insightface(images, labels):
    """Contents of insightface's train.rec: header, images, one header per identity."""
    count, classes = len(images), len(set(labels))
    header = image([count + 1, count + 1 + classes], 0, b"")
    body = [
        image([label, 0.0] if number % 2 else label, number + 1, encoded)
        for number, (encoded, label) in enumerate(zip(images, labels, strict=True))
    ]
    tail = [
        image([1 + labels.index(k), count + 1], count + 1 + k, b"")
        for k in range(classes)
    ]
    return [header, *body, *tail]
