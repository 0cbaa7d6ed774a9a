"""`python -m plsc_tf.classes`: edits a checkpoint's classes or reports wrong labels."""

from plsc_tf.jobs.classes import edit, noise
from plsc_tf.storage import files, fs_options


def run(settings):
    """Edits classes or reports wrong labels; returns table rows.

    Args:
        settings: the `Settings`; `classes` chooses between the two.

    Raises:
        ValueError: the settings request neither, or `jobs.classes.edit.edit` or
            `jobs.classes.noise.report` raises it.
    """
    given = settings.classes
    if not (given.edit_dir or given.noise_report):
        raise ValueError(
            "Set edit_dir, a new folder for a checkpoint with edited classes, or "
            "noise_report, a .json file for the labels that look wrong."
        )
    fs_options.set_user(settings.checkpoints)
    files.prepare(
        settings.checkpoints.checkpoint_dir or settings.checkpoints.model_save_dir
    )
    if given.edit_dir:
        return edit.edit(settings)
    return noise.report(settings)
