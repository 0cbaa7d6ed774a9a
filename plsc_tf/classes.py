r"""Edits the classes of a trained checkpoint, or reports labels that look wrong.

    python -m plsc_tf.classes --checkpoint_dir=runs/ms1m --edit_dir=runs/ms1m-2 \
        --remove_classes=3,17 --merge_classes=5+9 --class_images=new_people
    python -m plsc_tf.classes --checkpoint_dir=runs/ms1m --noise_report=noise.json \
        --noise_sheets=sheets --new_list=cleaned.txt

The checkpoint and the training data are never changed. Data set, folder and
preprocessing are those of the training unless they are given.
"""

import sys

from plsc_tf.options import cli

GROUPS = ("classes", "dataset", *cli.TRAINED_MODEL, "test_batch_size")


def main(settings):
    """Does what the settings ask for and prints a table."""
    from plsc_tf.evaluation.report import format_table

    sys.stdout.write(f"\n{format_table(run(settings))}\n")


def run(settings):
    """Edits or reports; returns the rows of a table.

    Args:
        settings: the `Settings`; `classes` says which of the two.

    Raises:
        ValueError: neither is asked for; or as `training.classes.edit.edit` and
            `training.classes.noise.report`.
    """
    from plsc_tf.storage import files, fs_options

    given = settings.classes
    if not (given.edit_dir or given.noise_report):
        raise ValueError(
            "Give edit_dir, a new folder for a checkpoint with edited classes, or "
            "noise_report, a .json file for labels that look wrong."
        )
    fs_options.set_user(settings.storage)
    files.prepare(settings.storage.checkpoint_dir or settings.storage.model_save_dir)
    if given.edit_dir:
        from plsc_tf.jobs.classes import edit

        return edit.edit(settings)
    from plsc_tf.jobs.classes import noise

    return noise.report(settings)


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
