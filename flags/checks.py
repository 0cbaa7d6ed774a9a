"""Provides checks for `option(..., check=...)`; each raises ValueError if it fails."""

import math
import re
from collections.abc import Callable, Sequence

from plsc_tf.requirements import require


def read_pairs(
    option: str, items: Sequence[str], sign: str, form: str, read: Callable
) -> dict:
    """Parses items such as "conv1:0.1"; returns `{key: value}`.

    Args:
        option: the option's name for error messages.
        items: the items as text.
        sign: separator between key and value.
        form: description of an item for error messages.
        read: function of (key, value as text) that returns the value or raises
            ValueError or `re.error`.
    """
    pairs = {}
    for item in items:
        key, _, text = (part.strip() for part in item.rpartition(sign))
        try:
            value = read(key, text)
        except (ValueError, re.error):
            key = ""
        rule = f"{option} must be {form}, each valid and once"
        require(key and key not in pairs, rule, item=repr(item))
        pairs[key] = value
    return pairs


def by_layer(option: str, items: Sequence[str]) -> dict[str, float]:
    """Parses items such as "conv1:0.1"; returns `{regular expression: factor}`."""
    form = "layer:factor pairs separated by commas (conv1:0.1; factors at least 0)"
    return read_pairs(option, items, ":", form, _factor)


def _factor(layer, text):
    re.compile(layer)
    factor = float(text)
    require(0 <= factor < math.inf, "out of bounds")
    return factor


def rule(words: str, holds: Callable) -> Callable:
    """Returns a check that raises "must <words>" unless `holds(value)` is true."""

    def check(option, value):
        if not holds(value):
            shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
            raise ValueError(f"{option} must {words}. Received: {option}={shown}.")

    return check


growing = rule("be increasing numbers", lambda n: list(n) == sorted(set(n)))
pair = rule("be two numbers, the smaller first", lambda n: len(n) == 2 and n[0] <= n[1])
unique = rule("name each item once", lambda items: len(set(items)) == len(items))
json_file = rule("end in .json", lambda path: not path or path.endswith(".json"))
npy_file = rule("end in .npy", lambda path: not path or path.endswith(".npy"))
power_of_two = rule("be a power of two", lambda number: not number & (number - 1))
