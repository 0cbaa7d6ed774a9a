"""Checks that a restored model keeps the loss of its checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from absl import logging

from plsc_tf.training import model_config

if TYPE_CHECKING:
    from plsc_tf.heads.base import Head

# What `Checkpoint.restore` compares, of `model_config.describe_head`.
HEAD = ("loss", "scale", "label_smoothing")


def check_head(
    checkpoint: str, stored: dict, head: Head, allowed: Iterable[str]
) -> None:
    """Checks that a model has the loss of its checkpoint.

    Args:
        checkpoint: its folder.
        stored: its state.
        head: the model's.
        allowed: names of `HEAD` that may change.

    Raises:
        ValueError: a name is unknown, or another one has changed.
    """
    unknown = sorted(set(allowed) - set(HEAD))
    if unknown:
        raise ValueError(
            f"allow_changes may hold {', '.join(HEAD)}. Received: {', '.join(unknown)}."
        )
    now, unscaled = model_config.describe_head(head), not head.loss.normalized
    before = stored.get("head", now)  # older ones have none
    changes = {
        name: [_words(before[name], now[name]), _words(now[name], before[name])]
        for name in HEAD
        if not _same(before[name], now[name]) and not (name == "scale" and unscaled)
    }
    for name, (old, new) in changes.items():
        if name in allowed:
            logging.info("changed: %s %s -> %s", name, old, new)
    refused = [name for name in changes if name not in allowed]
    if refused:
        old = ", ".join(f"{name} {changes[name][0]}" for name in refused)
        new = ", ".join(f"{name} {changes[name][1]}" for name in refused)
        raise ValueError(
            f"Checkpoint {checkpoint} was trained with {old}. Received: a model with "
            f"{new}. Build the model as it was, or allow the change: "
            f"restore(model, allow_changes={tuple(refused)!r})."
        )


def _same(old, new):
    """Whether two values are equal, as far as both versions of the library know."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old == new
    # A loss's gradient is how it is trained, not what it is.
    names = [name for name in old if name in new and name != "gradient"]
    return all(_same(old[name], new[name]) for name in names)


def _words(value, other):
    """A value in words; of a dict what differs from another."""
    if not isinstance(value, dict) or not isinstance(other, dict):
        return str(value)
    if value.get("kind") != other.get("kind"):
        return str(value["kind"])
    names = [n for n in value if n in other and not _same(value[n], other[n])]
    return " ".join(f"{name}={_words(value[name], other[name])}" for name in names)
