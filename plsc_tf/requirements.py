"""Checks of arguments, whose errors state the rule and what was received."""

from collections.abc import Collection, Sequence
from typing import Any


def require_one_of(allowed: Collection[Any], **received) -> None:
    """Raises a ValueError unless each of the received values is allowed."""
    for name, value in received.items():
        rule = f"{name} must be one of {', '.join(map(str, allowed))}"
        require(value in allowed, rule, **{name: repr(value)})


def require(condition: object, rule: str, advice: str = "", /, **received) -> None:
    """Raises a ValueError unless the condition is true.

    Args:
        condition: what must be true.
        rule: what was expected, a sentence without its period.
        advice: how to fix it, likewise, or "".
        **received: the values that the message shows.
    """
    if not condition:
        values = ", ".join(f"{name}={value}" for name, value in received.items())
        parts = [rule, f"Received: {values}" if received else "", advice]
        text = ". ".join(filter(None, parts))
        raise ValueError(text if received and not advice else f"{text}.")


def check_least(options, *names: str) -> None:
    """Raises ValueError if a named option is below 1, or `seed` is negative.

    Args:
        options: an object with these attributes and `seed`; None passes.
        names: names of the attributes.
    """
    for name in (*names, "seed"):
        value, least = getattr(options, name), int(name != "seed")
        good = value is None or value >= least
        require(good, f"{name} must be at least {least}", **{name: value})


def check_image_size(image_size: Sequence[int]) -> tuple[int, int]:
    """Returns (height, width) as ints; raises ValueError unless both are positive."""
    try:
        height, width = (int(value) for value in image_size)
    except (TypeError, ValueError):
        height = width = 0
    rule = "image_size must be (height, width), two positive numbers of pixels"
    require(height >= 1 and width >= 1, rule, image_size=repr(image_size))
    return height, width
