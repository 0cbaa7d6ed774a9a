"""Verifies a trained model on pairs of pictures.

    python -m plsc_tf.evaluate --flagfile=output/flags.cfg
    python -m plsc_tf.evaluate --checkpoint_dir=output --dataset_dir=train_data \
        --val_targets=lfw,agedb_30
"""

import sys

from plsc_tf import cli

GROUPS = ("dataset", "preprocessing", "performance", "storage", "evaluation")


def main(settings):
    """Evaluates as the settings say and prints a table."""
    from plsc_tf.evaluation.report import format_table
    from plsc_tf.training import trained

    sys.stdout.write(f"\n{format_table(trained.evaluate(settings))}\n")


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
