"""Resolves the hooks option: FastNN's four hooks, and the user's Keras callbacks."""

import keras

from plsc_tf import dotted_paths
from plsc_tf.requirements import did_you_mean, require

LOGGING = "LoggingTensorHook"
# {FastNN hook: values of the options that it would act on, if it is omitted}.
LEFT_OUT = {
    "StopAtStepHook": {"stop_at_step": 0},
    "ProfilerHook": {"profile_every_n_iters": 0},
    LOGGING: {},
    "CheckpointSaverHook": {"save_checkpoints_steps": 0, "save_checkpoints_epochs": 0},
}


def turn_off_omitted(settings):
    """Returns the settings with the features of omitted FastNN hooks turned off."""
    changes = {}
    for name in LEFT_OUT.keys() - {*settings.logging.hooks}:
        changes |= LEFT_OUT[name]
    return settings.replace(**changes) if changes else settings


def load_callbacks(names):
    """Creates the user's callbacks among the names.

    Args:
        names: values of the option `hooks`. "package.module:Class" names a Keras
            callback, or a class or function that returns one when called without
            arguments.

    Raises:
        ImportError: a path cannot be imported.
        TypeError: the object at a path needs arguments.
        ValueError: a name is neither a path nor one of FastNN's four hooks, or the
            object at a path is not a Keras callback.
    """
    return [_make(name) for name in names if name not in LEFT_OUT]


def _make(path):
    rule = f"A hook is one of {', '.join(LEFT_OUT)}, or the path of a Keras callback, "
    rule += "such as my_package.module:Callback"
    hint = did_you_mean(path, LEFT_OUT)
    require(all(dotted_paths.split(path)), rule, hook=f"{path!r}.{hint}")
    hook = dotted_paths.load(path, "hook")
    if callable(hook) and not isinstance(hook, keras.callbacks.Callback):
        hook = hook()
    rule = "A hook must be a keras.callbacks.Callback or a function that returns one"
    fits = isinstance(hook, keras.callbacks.Callback)
    require(fits, rule, hook=path, type=type(hook).__name__)
    return hook
