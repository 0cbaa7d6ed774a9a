"""Checks of arguments, whose errors state the rule and what was received."""

from collections.abc import Collection
from typing import Any


def require_one_of(allowed: Collection[Any], **received) -> None:
    """Raises a ValueError unless each of the received values is allowed."""
    for name, value in received.items():
        rule = f"{name} must be one of {', '.join(map(str, allowed))}"
        require(value in allowed, rule, **{name: repr(value)})


def require(condition: object, rule: str, **received) -> None:
    """Raises a ValueError with the rule and the values unless the condition is true."""
    if not condition:
        values = ", ".join(f"{name}={value}" for name, value in received.items())
        raise ValueError(f"{rule}. Received: {values}" if received else f"{rule}.")
