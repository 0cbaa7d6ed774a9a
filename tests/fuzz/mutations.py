"""Seeded changes to the bytes of a file, from single bits to lost and doubled parts."""

import struct

WORDS = (0, 1, 2, 0x7F, 0xFF, 2**29 - 1, 2**31 - 1, 2**31, 2**32 - 1)
TEXTS = (b"\t", b"\n", b"\0", b" ", b"-", b"9" * 19, b"9" * 400, b"\xff", b"=", b"../")


def mutate(data, random):
    """Returns the data with one to four random changes.

    Args:
        data: bytes.
        random: `random.Random`.
    """
    data = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _CHANGES[random.randrange(len(_CHANGES))](data, random)
    return bytes(data)


def _place(data, random):
    """A position; every second one is near the beginning, where headers are."""
    if random.random() < 0.5:
        return random.randrange(min(len(data), 64) + 1)
    return random.randrange(len(data) + 1)


def _span(data, random):
    start = _place(data, random)
    return start, start + random.choice((1, 2, 4, 8, 100, len(data)))


def _flip(data, random):
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _byte(data, random):
    place = _place(data, random)
    data[place : place + 1] = bytes([random.choice((0, 255, random.randrange(256)))])


def _word(data, random):
    place, order = _place(data, random), random.choice("<>")
    kind, mask = random.choice((("H", 2**16 - 1), ("I", 2**32 - 1), ("Q", 2**64 - 1)))
    value = random.choice((*WORDS, 2**63, len(data), random.getrandbits(32)))
    packed = struct.pack(order + kind, value & mask)
    data[place : place + len(packed)] = packed


def _cut(data, random):
    del data[_place(data, random) :]


def _remove(data, random):
    start, stop = _span(data, random)
    del data[start:stop]


def _double(data, random):
    start, stop = _span(data, random)
    place = _place(data, random)
    data[place:place] = data[start:stop]


def _noise(data, random):
    start, stop = _span(data, random)
    stop = min(stop, len(data))
    data[start:stop] = random.randbytes(max(0, stop - start))


def _text(data, random):
    place = _place(data, random)
    data[place : place + random.randrange(2)] = random.choice(TEXTS)


_CHANGES = (_flip, _flip, _byte, _word, _word, _cut, _remove, _double, _noise, _text)
