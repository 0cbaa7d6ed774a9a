"""Edits the classes of a checkpoint, or reports labels that look wrong."""

from plsc_tf.jobs.classes import edit, noise
from plsc_tf.storage import files, fs_options


def run(settings):
    """Edits or reports; returns the rows of a table.

    Args:
        settings: the `Settings`; `classes` says which of the two.

    Raises:
        ValueError: neither is asked for; or as `jobs.classes.edit.edit` and
            `jobs.classes.noise.report`.
    """
    given = settings.classes
    if not (given.edit_dir or given.noise_report):
        raise ValueError(
            "Give edit_dir, a new folder for a checkpoint with edited classes, or "
            "noise_report, a .json file for labels that look wrong."
        )
    fs_options.set_user(settings.checkpoints)
    files.prepare(
        settings.checkpoints.checkpoint_dir or settings.checkpoints.model_save_dir
    )
    if given.edit_dir:
        return edit.edit(settings)
    return noise.report(settings)
