"""Hooks by name: FastNN's four, and Keras callbacks of the user's own."""

import inspect

import keras
from absl import logging

from plsc_tf import dotted_paths
from plsc_tf.hints import did_you_mean

LOGGING = "LoggingTensorHook"
# Without this hook of FastNN's: (the effect, the options that have it).
LEFT_OUT = {
    "StopAtStepHook": ("stop_at_step has no effect", {"stop_at_step": 0}),
    "ProfilerHook": ("no traces are written", {"profile_every_n_iters": 0}),
    LOGGING: ("there are no lines of progress", {}),
    "CheckpointSaverHook": (
        "checkpoints are saved at the end only",
        {"save_checkpoints_steps": 0, "save_checkpoints_epochs": 0},
    ),
}


def applied(settings):
    """The settings, without what FastNN's hooks would do that are left out."""
    changes = {}
    for name, (effect, options) in LEFT_OUT.items():
        if name not in settings.logging.hooks:
            logging.info("hooks has no %s: %s.", name, effect)
            changes |= options
    return settings.replace(**changes) if changes else settings


def own(names):
    """The user's callbacks among the names, made.

    Args:
        names: of `hooks`; "package.module:Class" is a Keras callback, or a function
            that makes one, called without arguments.

    Raises:
        ImportError: a path leads nowhere.
        ValueError: a name that is neither a path nor one of FastNN's four; what is
            there is no Keras callback, or needs arguments.
    """
    return [_make(name) for name in names if name not in LEFT_OUT]


def _make(path):
    if not all(dotted_paths.split(path)):
        hint = did_you_mean(path, LEFT_OUT)
        raise ValueError(
            f"A hook is one of {', '.join(LEFT_OUT)}, or the path of a Keras callback, "
            f"as my_package.module:Callback. Received: {path!r}.{hint}"
        )
    made = dotted_paths.load(path, "hook", separator=":")
    if callable(made) and not isinstance(made, keras.callbacks.Callback):
        try:
            inspect.signature(made).bind()
        except TypeError as error:
            raise ValueError(
                f"A hook is called without arguments. Received: {path!r}, {error}. "
                "Name a function that makes it with its arguments."
            ) from error
        made = made()
    if not isinstance(made, keras.callbacks.Callback):
        raise ValueError(
            "A hook must be a keras.callbacks.Callback, not a SessionRunHook. "
            f"Received: {path!r}, which is {type(made).__name__}"
        )
    return made
