r"""Checks a data set: labels, pictures, duplicates, leaks into verification sets.

    python -m plsc_tf.check --dataset_name=image_list --dataset_dir=train_data
    python -m plsc_tf.check --dataset_name=ms1m --dataset_dir=train_data \
        --val_targets=lfw,agedb_30 --report=check.json --cleaned_list=cleaned.txt

The exit status is 0 when the set is sound, 1 when there are errors, 2 when it could not
be checked. Nothing of the data set is changed.
"""

import sys

from plsc_tf.options import cli

GROUPS = (
    "checking",
    "dataset",
    "no num_sample_per_epoch",
    "no held_back",
    "val_targets",
)


def main(settings):
    """Checks as the settings say, prints a table and ends with the exit status."""
    try:
        cli.check_dataset_dir(settings)
    except FileNotFoundError as error:
        _give_up(error)
    from plsc_tf.evaluation.report import format_table
    from plsc_tf.jobs import check

    try:
        result, rows = check.check(settings, GROUPS)
    except _cannot() as error:
        _give_up(error)
    sys.stdout.write(f"\n{format_table(rows)}\n")
    sys.exit(0 if result.sound else 1)


def _give_up(error):
    sys.stderr.write(f"plsc_tf: error: the data set cannot be checked: {error}\n")
    sys.exit(2)


def _cannot():
    """What stands in the way of a check, as opposed to what it finds."""
    import tensorflow as tf

    return ValueError, OSError, tf.errors.OpError


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
