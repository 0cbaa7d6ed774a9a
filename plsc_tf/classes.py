r"""Edits the classes of a trained checkpoint, or reports labels that look wrong.

    python -m plsc_tf.classes --checkpoint_dir=runs/ms1m --edit_dir=runs/ms1m-2 \
        --remove_classes=3,17 --merge_classes=5+9 --class_images=new_people
    python -m plsc_tf.classes --checkpoint_dir=runs/ms1m --noise_report=noise.json \
        --noise_sheets=sheets --new_list=cleaned.txt

The checkpoint and the training data are never changed. The data set, its folder and the
preprocessing default to those of the training.
"""

from plsc_tf.options import cli
from plsc_tf.requirements import require

GROUPS = ("classes", "dataset", *cli.TRAINED_MODEL, "test_batch_size")


def main(settings):
    """Edits the classes or reports label noise, and prints a table of the results."""
    from plsc_tf.jobs.classes import edit, noise

    given = settings.classes
    rule = "Set edit_dir, a new folder for a checkpoint with edited classes, or "
    rule += "noise_report, a .json file for the labels that look wrong"
    require(given.edit_dir or given.noise_report, rule)
    cli.print_table(edit.edit(settings) if given.edit_dir else noise.report(settings))


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
