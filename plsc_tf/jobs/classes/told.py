"""What a checkpoint tells about its training, for what the flags leave open."""

import dataclasses

from plsc_tf.checkpoints import manifest
from plsc_tf.flags.preprocessing import Preprocessing
from plsc_tf.jobs import trained
from plsc_tf.options.settings import Settings

_OF_THE_PICTURES = tuple(field.name for field in dataclasses.fields(Preprocessing))


def settings_of(path, settings):
    """Completes settings by those that a checkpoint was trained with.

    Args:
        path: the checkpoint folder.
        settings: the `Settings` as asked for.

    Returns:
        (as asked for, but data and preprocessing those of the training where nothing
        was asked, and the number of classes always; settings of the training).
    """
    state = manifest.read(path)["state"]
    flags = state.get("flags", {})
    names = (*trained.OF_THE_DATA, *_OF_THE_PICTURES)
    settings = settings.merged(flags, names).replace(num_classes=state["num_classes"])
    return settings, Settings.from_stored(flags)
