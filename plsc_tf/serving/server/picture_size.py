"""How many pixels a file says it has, before anything is decoded.

A few hundred bytes can claim, and unpack to, billions of pixels. Only headers are
read here; whether the rest is a picture is found by decoding it.

Formats: JPEG (ITU T.81 B.2), PNG (W3C PNG 11.2.2), GIF (GIF89a specification).
"""

import struct

# Markers without a length: TEM, RST0...RST7, SOI.
_BARE = frozenset((0x01, *range(0xD0, 0xD9)))
# Start of frame: all of C0...CF but tables (C4), reserved (C8), conditioning (CC).
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def num_pixels(data):
    """Pixels that decoding would make, all frames of a GIF together.

    Args:
        data: bytes of an encoded picture.

    Returns:
        A positive integer, or None when this is not the beginning of a JPEG, PNG or
        GIF with a size.
    """
    try:
        if data.startswith(b"\xff\xd8\xff"):
            return _jpeg(data)
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return _png(data)
        if data.startswith((b"GIF87a", b"GIF89a")):
            return _gif(data)
    except (IndexError, struct.error):
        pass
    return None


def _jpeg(data):
    position = 2
    while position < len(data):
        if data[position] != 0xFF:
            return None
        marker = data[position + 1]
        if marker == 0xFF:
            position += 1
        elif marker in _BARE:
            position += 2
        elif marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return height * width or None
        elif marker in (0xD9, 0xDA):
            return None
        else:
            (length,) = struct.unpack_from(">H", data, position + 2)
            position += 2 + length
    return None


def _png(data):
    if data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width * height or None


def _gif(data):
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    position, frames = 13 + _colours(flags), 0
    while data[position] != 0x3B:
        if data[position] == 0x21:
            position = _after_blocks(data, position + 2)
        elif data[position] == 0x2C:
            w, h, flags = struct.unpack_from("<HHB", data, position + 5)
            frames += max(w * h, width * height)
            # The byte after the colours is the code size of the data.
            position = _after_blocks(data, position + 11 + _colours(flags))
        else:
            return None
    return frames or None


def _colours(flags):
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_blocks(data, position):
    while data[position]:
        position += data[position] + 1
    return position + 1
