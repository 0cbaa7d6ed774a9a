r"""Starts the workers of this machine, one log each, and restarts them if asked to.

    python -m plsc_tf.launch --num_workers=2 --log_dir=logs -- --flagfile=my.cfg
    python -m plsc_tf.launch --cluster_node_ips=10.0.0.1,10.0.0.2 --node_ip=10.0.0.1 \
        --log_dir=logs --max_restarts=3 -- --flagfile=my.cfg
    python -m plsc_tf.launch --module=plsc_tf.evaluate -- --checkpoint_dir=output
    python -m plsc_tf.launch --selected_gpus=0,1,2,3 my_script.py --its_option=1

The options after -- are those of the training (or another --module, or a script and its
options). The exit status is 0 when all workers ended with 0, else that of the worker
that failed: 128 + n when signal n ended it.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from plsc_tf.options import cli, effects
from plsc_tf.parallel.launch import plan, supervise

GROUPS = ("launching", "cluster")
# Options that can turn out to have no effect; others of the cluster are the workers'.
TOLD = ("launching", "node_port")


def run(
    argv: Sequence[str],
    environ: Mapping[str, str],
    patience: supervise.Patience | None = None,
) -> None:
    """Runs the command and ends the process with its exit status.

    Args:
        argv: the arguments after the program's name.
        environ: the environment of the workers.
        patience: the `Patience` with the other workers when one has failed.
    """
    own, words = plan.split(argv)

    def launch(settings):
        plan.check_own(own)
        options = settings.launching
        planned = plan.make_plan(settings.cluster, options.selected_gpus, environ)
        script = bool(words) and words[0].endswith(".py")
        effects.tell(settings, {"cluster": planned.size > 1, "script": script}, TOLD)
        supervisor = supervise.Supervisor(
            planned,
            plan.command(options.module, words),
            environ,
            log_dir=options.log_dir,
            max_restarts=options.max_restarts,
            patience=patience,
        )
        sys.exit(supervisor.run())

    cli.main(launch, groups=GROUPS, doc=__doc__, argv=own)


if __name__ == "__main__":
    # A copy: the command changes the environment for itself.
    run(sys.argv[1:], dict(os.environ))
