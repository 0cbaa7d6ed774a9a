"""The network and the head of a model as JSON, from which both can be made again."""

import dataclasses
import json

import keras

from plsc_tf.heads import adaptive_margins, margins
from plsc_tf.heads.dense import DenseHead
from plsc_tf.heads.sharded import ShardedHead

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


def describe(model):
    """What a checkpoint says about how its model is made.

    Args:
        model: the `Classifier`.

    Returns:
        `{"network": Keras's JSON of the backbone, "head": dict}`; either is None where
        the user's own code makes it.
    """
    return {"network": _network_text(model.backbone), "head": _head(model.head)}


def make_network(text):
    """The backbone of `describe`, with initial weights.

    Args:
        text: Keras's JSON.

    Raises:
        ValueError: it has layers whose code is not known here, or code of its own,
            which is never run.
    """
    try:
        return keras.saving.deserialize_keras_object(json.loads(text), safe_mode=True)
    except (TypeError, AttributeError, ImportError) as error:
        raise ValueError(str(error)) from error


def make_head(num_classes, described):
    """The head of `describe`.

    Args:
        num_classes: classes.
        described: the dict.
    """
    loss = _make_loss(described["margins"])
    kind = HEADS[described["kind"]]
    return kind(num_classes, margins=loss, scale=described["scale"])


def _network_text(backbone):
    try:
        return backbone.to_json()
    except Exception:  # noqa: BLE001 - get_config is the user's code; saving goes on
        return None


def _head(head):
    kind, loss = type(head).__name__, _loss(head.margins)
    if HEADS.get(kind) is not type(head) or loss is None:
        return None
    return {"kind": kind, "scale": float(head.scale), "margins": loss}


def _loss(loss):
    """`{"kind": name, field: value}` of a loss of the library, else None."""
    kind = type(loss).__name__
    if LOSSES.get(kind) is not type(loss):
        return None
    described = {"kind": kind}
    for field in dataclasses.fields(loss):
        value = getattr(loss, field.name)
        if dataclasses.is_dataclass(value):
            value = _loss(value)
            if value is None:
                return None
        described[field.name] = value.item() if hasattr(value, "item") else value
    return described


def _make_loss(described):
    options = {
        name: _make_loss(value) if isinstance(value, dict) else value
        for name, value in described.items()
        if name != "kind"
    }
    return LOSSES[described["kind"]](**options)
