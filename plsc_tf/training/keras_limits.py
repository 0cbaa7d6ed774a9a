"""Checks Keras arguments of a `Classifier` and refuses unsupported Keras features."""

from collections.abc import Iterable
from typing import Any

import keras

from plsc_tf.requirements import require, require_one_of

# `{name: k}` of top-k accuracies.
METRICS = {"accuracy": 1, "top5_accuracy": 5}

_FIT = {
    "validation_split": "pass held-back images as validation_data",
    "validation_batch_size": "pass validation_data as a tf.data.Dataset of batches",
}
_COMPILE = {
    "loss": "pass it to the head: plsc_tf.ShardedHead(classes, loss=plsc_tf.ARCFACE)",
    "loss_weights": "the head's loss is the only one",
    "run_eagerly": "steps are always graphs; tf.print works within them",
    "auto_scale_loss": "a model in mixed_float16 gets a dynamic loss scale; disable it "
    "with loss_scale=plsc_tf.LossScale(1, dynamic=False)",
}
_HINTS = {"fit": _FIT, "compile": _COMPILE}


def metrics(
    plain: str | Iterable[str] | None, weighted: str | Iterable[str] | None
) -> tuple[dict[str, int], dict[str, int]]:
    """Checks and names the metrics of `compile`.

    Args:
        plain, weighted: `metrics` and `weighted_metrics` of Keras's `compile`: a name,
            several names, or None.

    Returns:
        (`{name: k}` of the plain metrics, `{name: k}` of the weighted ones). A weighted
        metric that is also a plain one is called "weighted_...", as in Keras.

    Raises:
        ValueError: a metric is unknown, or not a name.
    """
    plain, weighted = _names(plain), _names(weighted)
    names = {name: f"weighted_{name}" if name in plain else name for name in weighted}
    unweighted = {name: METRICS[name] for name in plain}
    return unweighted, {names[name]: METRICS[name] for name in weighted}


def _names(metrics):
    names = [metrics] if isinstance(metrics, str) else list(metrics or ())
    unknown = [name for name in names if name not in METRICS]
    rule = f"metrics must be among {', '.join(sorted(METRICS))}"
    advice = "Others would need the logits of all classes on one device"
    require(not unknown, rule, advice, metrics=unknown)
    return names


def refuse(method: str, names: Iterable[str], allowed: Iterable[str] = ()) -> None:
    """Raises TypeError, with a hint, for arguments that a method does not have.

    Args:
        method: "fit" or "compile".
        names: names of the arguments.
        allowed: names that are accepted.
    """
    for name in names:
        if name not in allowed:
            hint = _HINTS[method].get(name, "see its docstring")
            raise TypeError(f"Classifier.{method} has no argument {name!r}: {hint}.")


def check_own(parts: int, head_slot_dtype: str, head: Any) -> None:
    """Checks arguments of `compile` that Keras's `compile` does not have.

    Args:
        parts: `gradient_accumulation_steps` of `compile`.
        head_slot_dtype: see `compile`.
        head: the model's head.

    Raises:
        ValueError: an argument is out of range, or has no effect.
    """
    rule = "gradient_accumulation_steps must be at least 1"
    require(parts >= 1, rule, gradient_accumulation_steps=parts)
    # A dict compares hashes first, so that tf.int8, which equals "int8", is not in it.
    allowed = dict.fromkeys(("float32", "bfloat16", "int8"))
    require_one_of(allowed, head_slot_dtype=head_slot_dtype)
    rule = "head_slot_dtype needs a sharded head, plsc_tf.ShardedHead"
    fits = head.sharded or head_slot_dtype == "float32"
    require(fits, rule, head_slot_dtype=head_slot_dtype)


def check_backbone(backbone: Any) -> None:
    """Raises ValueError unless a model maps images of known size to embeddings.

    Args:
        backbone: the Keras model.
    """
    outputs: Any = getattr(backbone, "outputs", None)
    known = isinstance(backbone, keras.Model) and outputs
    rule = "The backbone must be a keras.Model with known inputs and outputs"
    advice = "Use plsc_tf.backbones.from_user and image_shape=(height, width, 3)"
    require(known, rule, advice, backbone=repr(backbone))
    shape = tuple(outputs[0].shape)
    flat = len(outputs) == 1 and len(shape) == 2 and shape[1] is not None
    rule = "The backbone must return embeddings [batch, embedding_size]"
    require(flat, rule, output_shape=backbone.output_shape)
    sized = None not in backbone.input_shape[1:3]
    rule = "The backbone must fix its images' size, as in keras.Input((112, 112, 3))"
    require(sized, rule, input_shape=tuple(backbone.input_shape))


ADVICE = (
    "To save and resume training, use the callback plsc_tf.Checkpoint(directory) and "
    "its restore(model); to load its weights, plsc_tf.load_model(directory); for the "
    "embedding network alone, the same method of model.backbone; for serving, "
    "plsc_tf.export_saved_model(model, path)."
)
# Callbacks that would call the methods refused below, after an epoch or more of work.
# Not every version of Keras has all of them.
CALLBACKS = ("BackupAndRestore", "ModelCheckpoint", "OrbaxCheckpoint")


# Methods of `keras.Model` that users call, and from `get_config` on, methods that Keras
# calls to save, pickle or load a model or its weights file. TensorFlow calls the last
# one in `tf.train.Checkpoint` and `tf.saved_model.save`.
_REFUSED = """
    save export save_weights load_weights get_weights set_weights get_state_tree
    set_state_tree get_config save_own_variables load_own_variables _trackable_children
"""


def refused(kind: type) -> type:
    """Makes methods that would omit the head raise ValueError; a class decorator."""
    for name in _REFUSED.split():
        setattr(kind, name, _refusing(f"{kind.__name__}.{name}"))
    return kind


def _refusing(what):
    def method(self, *args, **kwargs):
        raise refusal(what)

    method.__doc__ = "Refused: it would leave out the class weights of the head."
    return method


def check_callbacks(callbacks: Any) -> None:
    """Refuses callbacks that would save or restore the model without its head.

    Args:
        callbacks: the `callbacks` argument of `fit`: a callback, a list, or None.

    Raises:
        ValueError: a callback is not supported; names the callback and an alternative.
    """
    kinds = [getattr(keras.callbacks, name, None) for name in CALLBACKS]
    for callback in listed(callbacks):
        name = type(callback).__name__
        if isinstance(callback, tuple(kind for kind in kinds if kind)):
            raise refusal(name)
        rule = f"{name}(restore_best_weights=True) would restore the backbone alone"
        advice = "Use plsc_tf.Checkpoint(directory, save_best=True)"
        require(not getattr(callback, "restore_best_weights", False), rule, advice)


def listed(callbacks: Any) -> list:
    """Returns a list of callbacks from one, a list, a `CallbackList` or None."""
    callbacks = getattr(callbacks, "callbacks", callbacks) or []
    return list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]


def refusal(what: str) -> ValueError:
    """Creates the error that says why `what` is refused, and names alternatives."""
    return ValueError(f"{what} would leave out the class weights of the head. {ADVICE}")
