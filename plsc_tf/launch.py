r"""Starts the workers of this machine with one log each; can restart them.

    python -m plsc_tf.launch --num_workers=2 --log_dir=logs -- --flagfile=my.cfg
    python -m plsc_tf.launch --cluster_node_ips=10.0.0.1,10.0.0.2 --node_ip=10.0.0.1 \
        --log_dir=logs --max_restarts=3 -- --flagfile=my.cfg
    python -m plsc_tf.launch --module=plsc_tf.evaluate -- --checkpoint_dir=output
    python -m plsc_tf.launch --selected_gpus=0,1,2,3 my_script.py --its_option=1

The options after -- are passed to the training (or to another --module, or to a
script). The exit status is 0 if all workers ended with status 0; otherwise, it is the
status of the worker that failed, or 128 + n if signal n ended that worker.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from plsc_tf.options import cli, effects
from plsc_tf.parallel.launch import plan, supervise

# Further options of the cluster concern only the workers' program.
GROUPS = (
    *("launching", "cluster", "no join_timeout", "no worker_timeout"),
    *("no step_timeout", "no communication", "no gradient_bucket_mb"),
    *("no gradient_dtype", "no cluster_secret_file"),
)
# Options that may have no effect here; the cluster's other options concern the workers.
LOGGED = ("launching", "node_port")


def run(argv: Sequence[str], environ: Mapping[str, str], **limits: float) -> None:
    """Runs the command and ends the process with its exit status.

    Args:
        argv: the arguments after the program's name.
        environ: the environment of the workers.
        **limits: `notice_s` and `grace_s` of the `Supervisor`.
    """
    own, words = plan.split(argv)

    def launch(settings):
        options = settings.launching
        planned = plan.make_plan(settings.cluster, options.selected_gpus, environ)
        script = bool(words) and words[0].endswith(".py")
        facts = {"cluster": planned.size > 1, "script": script}
        effects.log_unused(settings, facts, LOGGED)
        supervisor = supervise.Supervisor(
            planned,
            plan.command(options.module, words),
            environ,
            log_dir=options.log_dir,
            max_restarts=options.max_restarts,
            **limits,
        )
        sys.exit(supervisor.run())

    cli.main(launch, groups=GROUPS, doc=__doc__, argv=own)


if __name__ == "__main__":
    # The environment is copied, because the command changes its own.
    run(sys.argv[1:], dict(os.environ))
