"""Refuses Keras's and TensorFlow's ways of saving, which miss a head's shards.

Shards are plain variables of their replicas, in no list that Keras or TensorFlow goes
through: a file written in these ways would lack them without a word.
"""

from __future__ import annotations

from typing import Any

import keras

ADVICE = (
    "Use the callback plsc_tf.Checkpoint(directory) and its restore(model) for a "
    "training, plsc_tf.load_model(directory) for its weights; the methods of the same "
    "name of model.backbone for the embedding network alone; "
    "plsc_tf.export_saved_model(model, path) for serving."
)
# Callbacks that would come to the methods below, after an epoch or more of work.
# Not every version of Keras has all of them.
CALLBACKS = ("BackupAndRestore", "ModelCheckpoint", "OrbaxCheckpoint")


# Methods of `keras.Model` that are refused, and what the error calls them.
REFUSED = {
    "save": "model.save",
    "save_weights": "model.save_weights",
    "load_weights": "model.load_weights",
    "export": "model.export",
    "get_weights": "model.get_weights",
    "set_weights": "model.set_weights",
    "get_state_tree": "model.get_state_tree",
    "set_state_tree": "model.set_state_tree",
    # What saving a model, and pickling it, begin with.
    "get_config": "Saving by Keras",
    # What all of Keras's files of weights begin with.
    "save_own_variables": "Saving by Keras",
    "load_own_variables": "Loading by Keras",
    # The way of `tf.train.Checkpoint` and `tf.saved_model.save`.
    "_trackable_children": "Saving by TensorFlow",
}


def refused(kind: type) -> type:
    """A class decorator: methods that would leave out the head raise a ValueError."""
    for name, what in REFUSED.items():
        setattr(kind, name, _refusing(name, what))
    return kind


def _refusing(name, what):
    def method(self, *args, **kwargs):
        raise refusal(what)

    method.__name__ = name
    method.__doc__ = "Refused: it would leave out the class weights of the head."
    return method


def check_callbacks(callbacks: Any) -> None:
    """Refuses callbacks that would save or keep the model without its head.

    Args:
        callbacks: what a user hands to `fit`: a callback, a list of them, or None.

    Raises:
        ValueError: names the callback, and what to use instead.
    """
    callback_types = vars(keras.callbacks)
    kinds = tuple(callback_types[name] for name in CALLBACKS if name in callback_types)
    listed = getattr(callbacks, "callbacks", callbacks) or []
    for callback in listed if isinstance(listed, (list, tuple)) else [listed]:
        if isinstance(callback, kinds):
            raise refusal(type(callback).__name__)
        if getattr(callback, "restore_best_weights", False):
            raise ValueError(
                f"{type(callback).__name__}(restore_best_weights=True) would take back "
                "the embedding network and leave the head as it is. Use "
                "plsc_tf.Checkpoint(directory, save_best=True), which keeps the best "
                "weights of both."
            )


def refusal(what: str) -> ValueError:
    """The error that says why something is not done, and what to use."""
    return ValueError(f"{what} would leave out the class weights of the head. {ADVICE}")
