"""The network and the head of a model as JSON: to make both again, or to compare."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import keras
from absl import logging

from plsc_tf.heads import adaptive_margins, margins
from plsc_tf.heads.heads import DenseHead, ShardedHead

if TYPE_CHECKING:
    from plsc_tf.heads.base import Head
    from plsc_tf.training.classifier import Classifier

HEADS = {kind.__name__: kind for kind in (ShardedHead, DenseHead)}
LOSSES = {
    kind.__name__: kind
    for kind in (
        adaptive_margins.AdaFace,
        adaptive_margins.CurricularFace,
        adaptive_margins.MagFace,
        margins.InterclassFilter,
        margins.Margins,
    )
}


def describe(model: Classifier) -> dict:
    """What a checkpoint keeps of how its model is made.

    Args:
        model: the `Classifier`.

    Returns:
        `{"network": JSON of the backbone, None where it has none; "head": dict}`
    """
    return {
        "network": _network_text(model.backbone),
        "head": describe_head(model.head),
    }


def describe_head(head: Head) -> dict:
    """What a checkpoint keeps of a head, as a dict of JSON values.

    A user's loss or head has a dotted name as its "kind".
    """
    return {
        "kind": _name(head, HEADS),
        "loss": _loss(head.loss),
        "scale": float(head.scale),
        "label_smoothing": float(head.label_smoothing),
        "sub_centers": head.sub_centers,
    }


def make_network(text: str) -> keras.Model:
    """The backbone of `describe`, with initial weights.

    Args:
        text: Keras's JSON.

    Raises:
        ValueError: it has layers whose code is not known here, or custom code,
            which is never run.
    """
    try:
        return keras.saving.deserialize_keras_object(json.loads(text), safe_mode=True)
    except (TypeError, AttributeError, ImportError) as error:
        raise ValueError(str(error)) from error


def make_head(num_classes: int, described: dict) -> DenseHead | ShardedHead | None:
    """The head of `describe_head`, None if the user's code makes it.

    Args:
        num_classes: classes.
        described: the dict.
    """
    kind, loss = HEADS.get(described["kind"]), _make_loss(described["loss"])
    if kind is None or loss is None:
        return None
    names = ("scale", "label_smoothing", "sub_centers")
    options = {name: described[name] for name in names}
    return kind(num_classes, loss=loss, **options)


def _network_text(backbone):
    try:
        return backbone.to_json()
    except Exception:  # noqa: BLE001 - get_config is the user's code; saving continues
        return None


def _name(thing, library):
    """The name of a thing's class, with its module where it is not the library's."""
    kind = type(thing)
    name = kind.__name__
    return name if library.get(name) is kind else f"{kind.__module__}.{name}"


def _loss(loss):
    """`{"kind": name, field: value}` with the fields that JSON can hold."""
    described = {"kind": _name(loss, LOSSES)}
    for field in dataclasses.fields(loss) if dataclasses.is_dataclass(loss) else ():
        value = getattr(loss, field.name)
        if dataclasses.is_dataclass(value):
            value = _loss(value)
        value = value.item() if hasattr(value, "item") else value
        if isinstance(value, bool | int | float | str | dict):
            described[field.name] = value
    return described


def _make_loss(described):
    """The loss of `_loss`, None where it is not the library's."""
    options = {
        name: _make_loss(value) if isinstance(value, dict) else value
        for name, value in described.items()
        if name != "kind"
    }
    kind = LOSSES.get(described["kind"])
    return None if kind is None or None in options.values() else kind(**options)


# What `Checkpoint.restore` compares, of `describe_head`.
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
    now, unscaled = describe_head(head), not head.loss.normalized
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
