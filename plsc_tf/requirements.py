"""Checks of arguments, whose errors state the rule and what was received."""

from collections.abc import Collection
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
