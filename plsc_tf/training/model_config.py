"""Describes a model's backbone and head as JSON, to recreate or compare them."""

import dataclasses
import json
import re

import keras

from plsc_tf.heads import adaptive_margins, margins
from plsc_tf.heads.base import Head
from plsc_tf.heads.heads import DenseHead, ShardedHead
from plsc_tf.requirements import require
from plsc_tf.storage import json_text

# A layer's call takes a millisecond; models within each other multiply their calls. An
# error of Keras repeats the texts of all models that contain its cause.
_MOST_CALLS, _MOST_TEXT = 5000, 1 << 21
# Objects that are no layers.
_PLAIN = re.compile(r"keras\.(\w*Policy|initializers|regularizers|constraints)|None\._")
# The parts of Keras that a network may have; any other function would be called.
_PARTS = re.compile(
    r"keras\.(\w*Policy|Sequential|Model|(layers|initializers|regularizers|constraints)"
    r"\.[A-Z]\w*)|keras\.src\.(models|applications|ops\.(numpy|nn))\.(\w+\.)*[A-Z]\w*"
)
# Layers that run code, read files or have tables of any size.
UNSAFE = """Lambda TFSMLayer TorchModuleWrapper JaxLayer FlaxLayer IndexLookup
IntegerLookup StringLookup TextVectorization Discretization RandAugment AugMix __numpy__
__tensor__""".split()
HEADS = {kind.__name__: kind for kind in (ShardedHead, DenseHead)}
LOSSES = {
    name: kind
    for name, kind in (vars(margins) | vars(adaptive_margins)).items()
    if isinstance(kind, type) and issubclass(kind, margins.MarginLoss)
}


def describe(backbone: keras.Model, head: Head) -> dict:
    """Describes how to create a model, for its checkpoints.

    Args:
        backbone: the network.
        head: its head.

    Returns:
        dict with "network", the backbone's JSON or None if Keras cannot serialize it,
        and "head", the result of `describe_head`.
    """
    return {"network": _network_text(backbone), "head": describe_head(head)}


def describe_head(head: Head) -> dict:
    """Describes a head as a dict of JSON values.

    The "kind" of a user-defined loss or head is its dotted name.
    """
    return {
        "kind": _name(head, HEADS),
        "loss": _loss(head.loss),
        "scale": float(head.scale),
        "label_smoothing": float(head.label_smoothing),
        "sub_centers": head.sub_centers,
    }


def make_network(text: str) -> keras.Model:
    """Creates a backbone from its description, with initial weights.

    Args:
        text: the backbone's JSON.

    Raises:
        ValueError: the backbone has unknown layers, is no description of one, or
            contains custom code, which is never run.
    """
    try:
        require(len(text) <= _MOST_TEXT, f"it has over {_MOST_TEXT} characters")
        # A network needs no optimizer and no metrics.
        described = json_text.parse(text.encode(), "it")
        text = json.dumps({**described, "compile_config": None})
        described = json.loads(text, object_hook=_refuse_code)
        if _calls(described) > _MOST_CALLS:
            raise ValueError(f"its layers are called over {_MOST_CALLS} times")
        network = keras.saving.deserialize_keras_object(described, safe_mode=True)
    except Exception as error:  # Keras raises errors of many types
        raise ValueError(f"{error!r:.300}") from error
    if not isinstance(network, keras.Model):
        raise ValueError(f"it describes a {type(network).__name__}, not a model")
    return network


def _refuse_code(described):
    # Keras also finds "layers.Lambda", in the module "keras".
    path = f"{described.get('module') or None}.{described.get('class_name', '__')}"
    name = path.rpartition(".")[2]
    # Without a module, it finds functions, too.
    odd = re.match(r"keras|builtins|None\.(?!__)", path) and not _PARTS.fullmatch(path)
    # Keras repeats given means for each channel.
    means = name == "Normalization" and described["config"].get("mean") is not None
    if odd or means or name in UNSAFE:
        raise ValueError(f"it has a {name}, which can run code or fill the memory")
    # Keras would compute the result at once: a few bytes could fill the memory.
    if {"args", "kwargs"} <= described.keys() and not _is_symbolic(described):
        raise ValueError("it has a layer that is called without another layer's output")
    return described


def _calls(value):
    """Returns how often layers are made or called: in a model called twice, twice.

    Keras builds a Sequential again with each of its layers.
    """
    if isinstance(value, list):
        return sum(map(_calls, value))
    if not isinstance(value, dict):
        return 0
    inside, nodes = sum(map(_calls, value.values())), value.get("inbound_nodes")
    name = f"{value.get('module')}.{value.get('class_name')}"
    inside += "class_name" in value and not _PLAIN.match(name)
    if name.endswith("Sequential"):
        inside = inside * len(value["config"]["layers"]) // 2
    return inside * max(1, len(nodes)) if isinstance(nodes, list) else inside


def _is_symbolic(value):
    """Returns whether a layer's arguments include another layer's output."""
    if isinstance(value, dict) and "class_name" in value:
        return value["class_name"] == "__keras_tensor__"
    values = value.values() if isinstance(value, dict) else value
    return isinstance(value, dict | list) and any(map(_is_symbolic, values))


def make_head(num_classes: int, described: dict) -> DenseHead | ShardedHead | None:
    """Creates a head from its description.

    Args:
        num_classes: number of classes.
        described: dict returned by `describe_head`.

    Returns:
        the head, or None if the head or its loss is user-defined.
    """
    kind, loss = HEADS.get(described["kind"]), _make_loss(described["loss"])
    if kind is None or loss is None:
        return None
    names = ("scale", "label_smoothing", "sub_centers")
    return kind(num_classes, loss=loss, **{name: described[name] for name in names})


def _network_text(backbone):
    try:
        return backbone.to_json()
    except Exception:  # noqa: BLE001 - get_config is the user's code; saving continues
        return None


def _name(thing, library):
    """Returns the name of an object's class, with its module if user-defined."""
    kind = type(thing)
    name = kind.__name__
    return name if library.get(name) is kind else f"{kind.__module__}.{name}"


def _loss(loss):
    """Returns `{"kind": name, field: value}` with the fields that fit in JSON."""
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
    """Creates the loss that `_loss` described; returns None if it is user-defined."""
    rest = dict(described)
    kind = LOSSES.get(rest.pop("kind"))
    made = {k: _make_loss(v) if isinstance(v, dict) else v for k, v in rest.items()}
    return None if kind is None or None in made.values() else kind(**made)


def check_head(path: str, stored: dict, head: Head) -> None:
    """Checks that a model's head has the same loss settings as its checkpoint.

    Args:
        path: the checkpoint's folder.
        stored: the checkpoint's state.
        head: the model's head.

    Raises:
        ValueError: a setting has changed.
    """
    now = describe_head(head)
    before = now | stored.get("head", {})
    scaled = ("scale",) if head.loss.normalized else ()
    compared = ("loss", *scaled, "label_smoothing")
    changed = [name for name in compared if not _same(before[name], now[name])]
    old, new = (", ".join(f"{n}={x[n]}" for n in changed) for x in (before, now))
    rule = f"Checkpoint {path} was trained with {old}. Received: a model with {new}"
    allow = "restore(model, allow_changes=True)"
    require(not changed, rule, f"Build the model as it was, or allow it: {allow}")


def _same(old, new):
    """Returns whether two settings, or all fields of two losses, have one value."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return old == new
    # A field is missing if a version of the library did not have it; the "gradient" of
    # a loss changes how it is trained, not its value.
    names = new.keys() - {"gradient"}
    return all(_same(old.get(name, new[name]), new[name]) for name in names)
