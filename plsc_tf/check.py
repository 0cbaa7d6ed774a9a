r"""Checks a data set for wrong labels, bad images, duplicates and leaks.

    python -m plsc_tf.check --dataset_name=image_list --dataset_dir=train_data
    python -m plsc_tf.check --dataset_name=ms1m --dataset_dir=train_data \
        --val_targets=lfw,agedb_30 --report=check.json --cleaned_list=cleaned.txt \
        --saved_model=output/export --min_quality=0.05

A leak is an image that is also in a verification set. The exit status is 0 if the data
set has no errors, 1 if it has errors, 2 if it cannot be checked. The data set is never
changed.
"""

import sys

from plsc_tf.options import cli

GROUPS = (
    *("checking", "dataset", "no num_sample_per_epoch", "no held_back", "val_targets"),
    *("split", "max_megapixels", "saved_model", "min_quality"),
)


def main(settings):
    """Checks the data set, prints a table of the results and exits with the status."""
    try:
        cli.check_dataset_dir(settings)
        from plsc_tf.jobs import check

        result, rows = check.check(settings)
    except Exception as error:
        if not cli.is_fixable(error):
            raise
        problem = f"plsc_tf: error: the data set cannot be checked: {error}\n"
        sys.stderr.write(cli.shown(problem))
        sys.exit(2)
    cli.print_table(rows)
    sys.exit(0 if result.report["sound"] else 1)


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
