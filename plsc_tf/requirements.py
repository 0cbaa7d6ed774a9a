"""Checks of arguments, whose errors say what is expected, and lists of names."""

import contextlib
import difflib
import importlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any


def require_one_of(allowed: Collection[Any], **received) -> None:
    """Raises a ValueError unless each of the received values is allowed."""
    for name, value in received.items():
        rule = f"{name} must be one of {', '.join(map(str, allowed))}"
        require(value in allowed, rule, **{name: repr(value)})


def require(
    condition: object, rule: str, advice: str = "", /, raises=ValueError, **received
) -> None:
    """Raises an error unless the condition is true.

    Args:
        condition: what must be true.
        rule: what was expected, a sentence without its period.
        advice: how to fix it, likewise, or "".
        raises: class of the error.
        **received: the values that the message shows.
    """
    if not condition:
        values = ", ".join(f"{name}={value}" for name, value in received.items())
        parts = [rule, f"Received: {values}" if received else "", advice]
        text = ". ".join(filter(None, parts))
        raise raises(text if received and not advice else f"{text}.")


@contextlib.contextmanager
def prefix_errors(text: str, *kinds: type[Exception], advice: str = "") -> Iterator:
    """Raises the block's ValueErrors as ValueErrors "text: error", cut if it is long.

    Args:
        text: what failed.
        *kinds: classes of other errors to raise likewise.
        advice: how to fix it, a sentence without its period, or "".
    """
    try:
        yield
    except (ValueError, *kinds) as error:
        problem = f"{text}: {error!s:.500}"
        if advice:
            problem = f"{problem.rstrip('.')}. {advice}."
        raise ValueError(problem) from error


def require_package(name: str, extra: str, user: str) -> ModuleType:
    """Imports an optional package.

    Args:
        name: the package.
        extra: the extra of plsc_tf that installs it.
        user: what needs it, the beginning of a sentence.

    Raises:
        ImportError: it or a package that it needs is missing.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        advice = f"pip install 'plsc_tf[{extra}]'"
        raise ImportError(f"{user} requires {error.name}: {advice}") from error


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


def listed(items: Iterable[str], most: int = 6, separator: str = ", ") -> str:
    """Returns a text with the first few items and the number of the others."""
    items = list(items)
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return separator.join(items[:most]) + more


def did_you_mean(name, names, *, most=1, before=""):
    """Returns ` Did you mean 'x' or 'y'?`, or "" if no name is similar.

    Args:
        name: the unknown name.
        names: the known names.
        most: maximum number of names to suggest.
        before: prefix of each suggestion, such as its module.
    """
    words = [f"'{before}{word}'" for word in nearest(name, names, most)]
    return f" Did you mean {' or '.join(words)}?" if words else ""


def similar_name(path):
    """Returns ` Did you mean 'x'?`, x being in the folder of a local path, or ""."""
    folder, name = os.path.split(path)
    folder = folder or "."
    others = os.listdir(folder) if os.path.isdir(folder) else []
    return did_you_mean(name, [other for other in others if other != name])


def nearest(name, names, most=1):
    """Returns the names with the most similar spelling, best match first.

    Args:
        name: the unknown name.
        names: the known names.
        most: maximum number of names to return.
    """
    by_plain = {normalize(other): other for other in sorted(names, reverse=True)}
    matches = difflib.get_close_matches(normalize(name), by_plain, n=most, cutoff=0.65)
    return [by_plain[match] for match in matches]


def normalize(name):
    """Returns a name in lower case, with underscores instead of hyphens."""
    return name.lower().replace("-", "_")
