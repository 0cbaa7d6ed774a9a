"""Checks of single options, for `option(..., check=...)`: each raises ValueError."""

import math
import re
from collections.abc import Sequence


def by_layer(option: str, items: Sequence[str]) -> dict[str, float]:
    """Returns `{regular expression: factor}` of items like "conv1:0.1".

    Args:
        option: its name, for errors.
        items: the texts.

    Raises:
        ValueError: an item that is not layer:factor, or a layer given twice.
    """
    factors = {}
    for item in items:
        layer, _, text = item.rpartition(":")
        try:
            re.compile(layer)
            factor = float(text)
        except (re.error, ValueError):
            factor = math.nan
        if not layer or layer in factors or not 0 <= factor < math.inf:
            raise ValueError(
                f"{option} must be layer:factor separated by commas, such as "
                "conv1:0.1,stage4:2, each layer once, a factor at least 0. "
                f"Received: {option}={','.join(items)}, at {item!r}."
            )
        factors[layer] = factor
    return factors


def growing(option: str, values: Sequence[float]) -> None:
    """Refuses numbers of which one is not above the one before."""
    if list(values) != sorted(set(values)):
        _refuse(option, "must be growing numbers", values)


def pair(option: str, values: Sequence[float]) -> None:
    """Refuses all but two numbers, the smaller one first."""
    if len(values) != 2 or values[0] > values[1]:
        _refuse(option, "must be two numbers, the smaller one first", values)


def growing_pair(option: str, values: Sequence[float]) -> None:
    """Refuses all but two different numbers, the smaller one first."""
    pair(option, values)
    if values[0] == values[1]:
        _refuse(option, "must be two numbers that differ", values)


def unique(option: str, values: Sequence) -> None:
    """Refuses a list that has something twice."""
    if len(set(values)) < len(values):
        _refuse(option, "must name each item once", values)


def json_file(option: str, path: str) -> None:
    """Refuses files that do not end in .json."""
    if path and not path.endswith(".json"):
        _refuse(option, "must end in .json", [path])


def npy_file(option: str, path: str) -> None:
    """Refuses files that do not end in .npy."""
    if path and not path.endswith(".npy"):
        _refuse(option, "must end in .npy", [path])


def _refuse(option, rule, values):
    raise ValueError(
        f"{option} {rule}. Received: {option}={','.join(map(str, values))}."
    )
