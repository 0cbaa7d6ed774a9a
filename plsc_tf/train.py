"""Trains a class-sharded classifier, verifies it, saves it and exports it.

A training that finds its own checkpoints in model_save_dir goes on from the newest.

    python -m plsc_tf.train --flagfile=hparams/quickstart.cfg
    python -m plsc_tf.train --flagfile=hparams/ms1m.cfg --batch_size=64
    python -m plsc_tf.train --flagfile=output/flags.cfg
    python -m plsc_tf.train --flagfile=hparams/ms1m.cfg --dry_run
"""

import sys

from plsc_tf import cli

# Options of other commands that would be ignored here.
ELSEWHERE = ("launching", "scoring", "server", "classes")
GROUPS = tuple(group for group in cli.ALL if group not in ELSEWHERE)


def main(settings):
    """Trains as the settings say and prints the closing table, or plans the memory."""
    if settings.performance.dry_run:
        from plsc_tf.boost import stage
        from plsc_tf.training import plan_report, planner

        job = planner.plan(settings, stage=stage.of(settings))
        sys.stdout.write(f"{plan_report.text(job)}\n")
        sys.exit(0 if job.fits() else 1)
    if settings.saving.prove_resume:
        from plsc_tf.training import resume_proof

        proof = resume_proof.prove(settings)
        sys.stdout.write(f"{resume_proof.text(proof)}\n")
        sys.exit(0 if proof["exact"] else 1)
    from plsc_tf.boost import stage
    from plsc_tf.training import results, run
    from plsc_tf.training.termination import Termination

    termination = Termination()
    termination.listen()
    settings, outcome = run.train(settings, termination, stage=stage.of(settings))
    if outcome is None:
        return  # a worker beside the chief, which tells
    sys.stdout.write(f"\n{results.table(settings, outcome)}\n")


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__)
