"""The settings of the training, for options that are not given."""

import dataclasses

from plsc_tf.checkpoints import manifest
from plsc_tf.flags.preprocessing import Preprocessing
from plsc_tf.jobs import trained
from plsc_tf.options.settings import Settings

_NAMES = (
    *trained.OF_THE_DATA,
    *(field.name for field in dataclasses.fields(Preprocessing)),
)


def complete(settings, path):
    """Completes settings by those that a checkpoint was trained with.

    Args:
        settings: the `Settings` of the command.
        path: the checkpoint folder.

    Returns:
        (the same with data and preprocessing of the training, where options are not
        given, and its number of classes; settings of the training).
    """
    state = manifest.read(path)["state"]
    flags = state.get("flags", {})
    settings = settings.merged(flags, _NAMES).replace(num_classes=state["num_classes"])
    return settings, Settings.from_stored(flags)
