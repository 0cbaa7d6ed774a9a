"""Trains a class-sharded classifier, verifies it, saves it and exports it.

If model_save_dir contains checkpoints of the same training, it resumes from the newest.
Without options, the command trains the quick start on synthetic images.

    python -m plsc_tf.train
    python -m plsc_tf.train --flagfile=quickstart.cfg
    python -m plsc_tf.train --flagfile=ms1m.cfg --batch_size=64
    python -m plsc_tf.train --flagfile=output/flags.cfg
    python -m plsc_tf.train --flagfile=ms1m.cfg --dry_run

The files of hparams/ are part of the package, and --flagfile finds them by name.
"""

import sys

from absl import logging

from plsc_tf.options import cli, flagfiles
from plsc_tf.options.settings import select
from plsc_tf.parallel.worker_lost import NOT_SAVED_STATUS
from plsc_tf.storage import files

# The groups of other commands are never saved in a run's flags.cfg.
GROUPS = tuple(dict.fromkeys(i.group for i in select(cli.ALL) if i.saved))
GROUPS = *(g for g in GROUPS if g != "server"), "max_megapixels", "no card"

_NEXT_STEPS = """
That was the quick start, --flagfile=quickstart.cfg, because no options were set.
To train on your own images, in one folder per class:
  python -m plsc_tf.train --flagfile={flags} --dataset_name=folder \\
    --dataset_dir=FOLDER --num_classes=N --held_back=0.2 --val_targets=test \\
    --model_save_dir=output/mine
All options: python -m plsc_tf.train --help
"""


def run(argv):
    """Runs the command; without arguments, trains the quick start."""
    if argv:
        cli.main(main, groups=GROUPS, doc=__doc__, argv=argv)
    flags = flagfiles.packaged()["quickstart.cfg"]
    cli.main(quick_start, groups=GROUPS, argv=[f"--flagfile={flags}"])


def quick_start(settings):
    """Trains on synthetic images and prints next steps (FastNN: dataset_name=mock)."""
    sys.stdout.write(
        "No options: training the quick start on synthetic images, for a few minutes.\n"
    )
    sys.stdout.flush()
    main(settings)
    flags = files.join(settings.checkpoints.model_save_dir, "flags.cfg")
    sys.stdout.write(_NEXT_STEPS.format(flags=flags))


def main(settings):
    """Trains and prints a table of the results, or plans the memory (--dry_run)."""
    if "dataset_name" not in settings.given:
        logging.info(
            "dataset_name is not set: using synthetic images (mock). To change options "
            "of the quick start, add --flagfile=quickstart.cfg."
        )
    if settings.performance.dry_run:
        from plsc_tf.jobs.memory_plan import planner, table

        job = planner.plan(settings)
        report = table.as_json if settings.performance.json else table.text
        sys.stdout.write(f"{report(job)}\n")
        sys.exit(0 if job.fits() else 1)
    cli.check_dataset_dir(settings)
    from plsc_tf.jobs import results, train

    settings, outcome = train.train(settings)
    if outcome is None:
        return  # Only the chief has an outcome to print.
    sys.stdout.write(f"\n{cli.shown(results.table(settings, outcome))}\n")
    if "unsaved_steps" in outcome:
        sys.exit(NOT_SAVED_STATUS)


if __name__ == "__main__":
    run(sys.argv[1:])
