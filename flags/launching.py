"""Starting the processes of a machine."""

import dataclasses

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Launching(OptionGroup, saved=False):
    """How `python -m plsc_tf.launch` runs the workers of this machine."""

    selected_gpus: tuple[int, ...] = option(
        (),
        "GPUs of this machine to use, split evenly over its workers; empty: all, which "
        "needs num_workers=1 (PLSC selected_gpus)",
        lower=0,
        check=checks.unique,
    )
    log_dir: str = option(
        "",
        "folder of one log per worker, worker-0.log and so on; the terminal shows the "
        "first one of this machine. Empty: no files, the terminal shows all (Paddle "
        "log_dir)",
    )
    max_restarts: int = option(
        0,
        "how often all workers are started again after one failed; a training resumes "
        "from its last checkpoint",
        lower=0,
    )
    module: str = option(
        "plsc_tf.train",
        "Python module that the workers run, such as plsc_tf.evaluate, unless the "
        "first word after -- is a script",
        applies="no script",
    )
