"""Describes what a manifest may contain, and checks all of it when it is read.

Whoever writes a manifest also writes its checksum, so a right checksum proves nothing
about the content. See docs/checkpoint_format.md for the meaning of every key.
"""

import math
import re
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

from plsc_tf.storage.checksums import algorithm_of

# The key for all keys of an object that are not listed.
OTHERS = "*"
_DTYPE = re.compile(
    r"bool|(?:bfloat(?=16)|float|u?int)(8|16|32|64)(?:(?<=float8)_(?:e4m3fn|e5m2))?"
)


class Kind(NamedTuple):
    """A kind of value: its description for messages, and a function to recognize it."""

    words: str
    fits: Callable[[Any], Any]


def _is_count(value, least=0, most=2**53):
    # Beyond 2^53, readers of JSON do not agree on whole numbers.
    return type(value) is int and least <= value <= most


def _is_shape(value):
    return isinstance(value, list) and len(value) <= 32 and all(map(_is_count, value))


def _is_number(value):
    # A run whose loss became NaN has NaN in its sums; a log may be infinite.
    return type(value) in (int, float) and not 1e300 < abs(value) < math.inf


def _is_text(value, pattern=".*"):
    return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL)


ANYTHING = Kind("a value", lambda value: True)
SIMPLE = Kind("a simple value", lambda v: not isinstance(v, dict | list))
TEXT = Kind("a text", _is_text)
COUNT = Kind("a whole number from 0", _is_count)
SIZE = Kind("a whole number from 1 to 2^20", lambda v: _is_count(v, 1, 1 << 20))
CENTERS = Kind("a whole number from 1 to 1,000", lambda v: _is_count(v, 1, 1000))
NUMBER = Kind("a number", _is_number)
POSITIVE = Kind("a positive number", lambda v: _is_number(v) and 0 < v < 1e30)
SHAPE = Kind("a list of whole numbers", _is_shape)
DTYPE = Kind("a numeric type", lambda v: _is_text(v, _DTYPE.pattern))
DIGEST = Kind("64 hexadecimal digits", lambda v: _is_text(v, "[0-9a-f]{64}"))
PURPOSE = Kind("training or weights", lambda v: _is_text(v, "training|weights"))

# An object is described by a dict. Its keys with "?" may be missing; keys that are not
# listed may have any value. [kind] is a list, and (kind, None) is of the kind or null.
NUMBERS = {OTHERS: NUMBER}
ARRAY = {"shape": SHAPE, "dtype": DTYPE}
PART = {"file": TEXT, "first": COUNT, "last": COUNT}
SCALE = {"scale": POSITIVE, "good_steps": COUNT, "bad_steps": COUNT}
HEAD = {"kind": TEXT, "loss": {"kind": TEXT}, "scale": POSITIVE}
START: dict = {"time": TEXT, "step": COUNT, "replicas": COUNT, "workers": COUNT}
START |= {"changed?": {OTHERS: [TEXT]}}
STATE = {
    **dict.fromkeys(("num_classes", "global_step", "epoch?", "step?"), COUNT),
    **dict.fromkeys(("embedding_size", "replicas?"), SIZE),
    **dict.fromkeys(("epoch_sums?", "head_state?"), NUMBERS),
    "network?": (TEXT, None),
    "head?": HEAD | {"label_smoothing": NUMBER, "sub_centers": CENTERS},
    "run?": (TEXT, None),
    "optimizer?": TEXT,
    "loss_scale?": (SCALE, None),
    "averages?": [SIMPLE],
    "logs?": {OTHERS: (NUMBER, None)},
    "best?": ({"epoch": COUNT, "accuracy": NUMBER, "of?": [TEXT]}, None),
    "flags?": {},
    "given?": [TEXT],
    "data?": {"images": ANYTHING, "contents": TEXT},
    "origins?": [{"kind": TEXT, "name": TEXT, OTHERS: TEXT}],
    "starts?": [START],
    "class_edits?": ANYTHING,
}
MANIFEST = {
    "format": COUNT,
    "kind": PURPOSE,
    "versions": {OTHERS: TEXT},
    "state": STATE,
    "backbone": {"file": TEXT, "weights": [{"path": TEXT, **ARRAY}]},
    "training": {"file?": TEXT, "variables?": {OTHERS: ARRAY}},
    "arrays": {OTHERS: {**ARRAY, "parts": [PART]}},
    "files": {OTHERS: {"bytes": COUNT}},
}


def check(content: dict) -> None:
    """Checks the types in a manifest, and that its numbers fit together.

    No array then needs more memory than its files have bytes.

    Raises:
        ValueError: a value is not as described; the message names its key.
    """
    _check_types(content, MANIFEST, "")
    listed = {OTHERS: {algorithm_of(content["files"]): DIGEST}}
    _check_types(content["files"], listed, "files")
    training, state, arrays = content["training"], content["state"], content["arrays"]
    whole = {"file", "variables"} if content["kind"] == "training" else set()
    _require(training.keys() == whole, "training", f"have the keys {sorted(whole)}")
    # A network has no numbers of 8 bits: it would need a multiple of the file's bytes.
    size = sum(_size(weight, 16) for weight in content["backbone"]["weights"])
    needs = [("backbone.file", content["backbone"]["file"], size)]
    if training:
        size = sum(map(_size, training["variables"].values()))
        needs.append(("training.file", training["file"], size))
    _require(not arrays or "weight" in arrays, "arrays", "hold the head's weight")
    for name, array in arrays.items():
        place, shape = f"arrays.{reprlib.repr(name)[1:-1]}", array["shape"]
        rows = shape[:1]
        if name.partition("/")[0] in ("weight", "bias"):
            rows = [state["num_classes"]]
        fits = shape and 0 not in shape and shape[:1] == rows
        _require(fits, f"{place}.shape", f"begin with {rows}, and have no 0")
        needs += _part_sizes(f"{place}.parts", array)
    if "weight" in arrays:
        centers = [state.get("head", {}).get("sub_centers", 1)]
        row = [*(centers if centers > [1] else []), state["embedding_size"]]
        fits = arrays["weight"]["shape"][1:] == row
        _require(fits, "arrays.weight.shape", f"end with {row}, as state says")
    for name in content["files"]:
        # Other names lead outside.
        below = name.isprintable() and not {"", ".", ".."} & set(name.split("/"))
        _require(below, "files", f"be below the folder, not {name!r:.80}")
    # Of a file's bytes, those that no part needs.
    left = {name: entry["bytes"] for name, entry in content["files"].items()}
    for place, name, least in needs:
        left[name] = left.get(name, -1) - least
        _require(left[name] >= 0, place, f"fit into a listed file, not {name!r:.80}")


def _part_sizes(place, array):
    """Returns [(place, file, bytes)], and checks that files contain each row once."""
    parts, rows = array["parts"], array["shape"][0]
    ends = [0, *(part["last"] + 1 for part in parts)]
    whole = [*(part["first"] for part in parts), rows] == ends
    rule = f"list files; these {len(parts)} do not make up {rows} rows"
    _require(whole and ends == sorted(set(ends)), place, rule)
    row = _size(array) // rows
    spans = zip(parts, ends, ends[1:], strict=False)
    return [(place, part["file"], (end - low) * row) for part, low, end in spans]


def _size(array, least=8):
    """Returns the number of bytes in an array of at least `least` bits per number."""
    bits = max(least, int(_DTYPE.fullmatch(array["dtype"])[1] or 8))
    return math.prod(array["shape"]) * bits // 8


def _check_types(value, kind, place):
    """Checks a value and all values in it; `place` is its key, for messages."""
    if isinstance(kind, tuple) and not isinstance(kind, Kind):
        kind = ANYTHING if value is None else kind[0]
    if isinstance(kind, Kind):
        _require(kind.fits(value), place, f"be {kind.words}, not {reprlib.repr(value)}")
    elif isinstance(kind, list):
        _require(isinstance(value, list), place, "be a list")
        for number, item in enumerate(value):
            _check_types(item, kind[0], f"{place}[{number}]")
    else:
        _require(isinstance(value, dict), place, "be an object")
        needed = {key for key in kind if key[-1] not in "?*"}
        _require(needed <= value.keys(), place, f"have {sorted(needed - value.keys())}")
        for key, item in value.items():
            inner = kind.get(key, kind.get(f"{key}?", kind.get(OTHERS, ANYTHING)))
            _check_types(item, inner, f"{place}.{reprlib.repr(key)[1:-1]}".lstrip("."))


def _require(fits, place, rule):
    if not fits:
        raise ValueError(f"{place or 'it'} must {rule}")
