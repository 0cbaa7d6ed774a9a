"""Trains a class-sharded classifier, verifies it, saves it and exports it.

A training that finds its own checkpoints in model_save_dir goes on from the newest.

    python -m plsc_tf.train --flagfile=hparams/quickstart.cfg
    python -m plsc_tf.train --flagfile=hparams/ms1m.cfg --batch_size=64
    python -m plsc_tf.train --flagfile=output/flags.cfg
"""

import sys

from plsc_tf import cli


def main(settings):
    """Trains as the settings say and prints the closing table."""
    from plsc_tf.training import results, run

    settings, outcome = run.train(settings)
    sys.stdout.write(f"\n{results.table(settings, outcome)}\n")


if __name__ == "__main__":
    cli.main(main, doc=__doc__)
