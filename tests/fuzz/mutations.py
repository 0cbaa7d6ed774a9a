"""Seeded changes to the bytes of a file, from single bits to lost and doubled parts."""

import copy
import json
import math
import struct

WORDS = (0, 1, 2, 0x7F, 0xFF, 2**29 - 1, 2**31 - 1, 2**31, 2**32 - 1)
TEXTS = (b"\t", b"\n", b"\0", b" ", b"-", b"9" * 19, b"9" * 400, b"\xff", b"=", b"../")
SECRET = "/tmp/secret"
NESTED = json.loads("[" * 400 + "]" * 400)
# Put in place of values in JSON.
VALUES = (
    *(None, True, -1, 0, 1, 3, 1.5, math.nan, math.inf, 2**31, 2**53 + 1, 2**63, 2**70),
    *("", "x", "1", "float32", "../secret", SECRET, "\x1b[2J", "a" * 10**5, [], {}),
    *([1, 2], [2**40, 2**40], [[]], {"kind": "x"}, {"class_name": "Lambda"}, NESTED),
    *("é\0", "=" * 9, {"b64": 1}, {"b64": "AAAA"}, [[[[0]]]], ["a", 1, None]),
)


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


def change_json(content, dice):
    """Changes one to four values anywhere in a JSON object."""
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        places = list(_places(content)) or [({0: 0}, 0)]
        holder, key = dice.choice(places)
        kind = dice.randrange(8)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            other, place = dice.choice(places)
            holder[key] = copy.deepcopy(other[place])
        elif kind == 2 and isinstance(holder, dict):
            holder[dice.choice(("x", "\x1b[2J", "../secret"))] = holder.pop(key)
        elif kind == 3 and isinstance(holder[key], int):
            holder[key] += dice.choice((-1, 1, holder[key], 2**32))
        else:
            holder[key] = copy.deepcopy(dice.choice(VALUES))


def _places(value):
    """Yields (object or list, key) of all values in a JSON value."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
