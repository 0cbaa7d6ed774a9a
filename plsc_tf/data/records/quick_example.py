"""Image and label of a `tf.train.Example` in a third of protobuf's time.

TensorFlow's own parser of examples is not used: it ends the process where the length
of a value is declared as 2 GiB or more (2.17.1).
"""

from __future__ import annotations

import functools

from plsc_tf.data.records.tfrecord import parse_example

# A map entry's key, and the tag of its value: the field numbers are protobuf's.
_IMAGE = b"\x0a\x0dimage/encoded\x12"
_LABEL = b"\x0a\x11image/class/label\x12"
# A feature of one label: its length, then lists and tags of a byte each.
_LABEL_START = b"\x1a"
_MOST_LABEL_BYTES = 16


def image_and_label(payload: bytes) -> tuple[bytes, int]:
    """Returns the encoded image and the label of an example with FastNN's keys.

    All lengths around a value must agree with its own; whatever is written in another
    way is left to protobuf.

    Raises:
        ValueError: it is no such example.
    """
    try:
        image = _image(payload)
        at = payload.index(_LABEL) + len(_LABEL)
        label = _label(payload[at : at + 1 + payload[at]])
    except (IndexError, ValueError):
        return parse_example(payload)
    return image, label


def _image(payload):
    """The only value of the feature behind the key."""
    at = payload.index(_IMAGE) + len(_IMAGE)
    ends = []
    for _ in range(3):  # the feature, its list of bytes, the value
        length, at = _length(payload, at)
        ends.append(at + length)
        if len(ends) < 3:
            if payload[at] != 0x0A:
                raise ValueError("another kind of feature")
            at += 1
    if not ends[0] == ends[1] == ends[2] <= len(payload):
        raise ValueError("lengths that do not agree")
    return payload[at : ends[2]]


def _length(data, at):
    """A length of at most four bytes and what comes behind it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    length, shift = byte & 0x7F, 7
    for place in range(at + 1, at + 4):
        byte = data[place]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length, place + 1
        shift += 7
    raise ValueError("a long length")


@functools.lru_cache(maxsize=1 << 16)
def _label(feature):
    """The only number of a feature, of which the first byte is the length."""
    if not 4 <= len(feature) == feature[0] + 1 <= _MOST_LABEL_BYTES:
        raise ValueError("another length")
    if feature[1:2] != _LABEL_START or feature[2] != len(feature) - 3:
        raise ValueError("another kind of feature")
    # Packed, as writers do it now, or not.
    if feature[3] == 0x0A and feature[4] == len(feature) - 5:
        digits = feature[5:]
    elif feature[3] == 0x08:
        digits = feature[4:]
    else:
        raise ValueError("another kind of list")
    number = sum((byte & 0x7F) << 7 * k for k, byte in enumerate(digits))
    last = len(digits) - 1
    if number >= 1 << 64 or any(
        (b < 0x80) != (k == last) for k, b in enumerate(digits)
    ):
        raise ValueError("several numbers")
    return number - (1 << 64) if number >= 1 << 63 else number
