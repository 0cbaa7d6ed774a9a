"""Starting the processes of a machine."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Launching(OptionGroup):
    """What `python -m plsc_tf.launch` does with the workers of this machine."""

    selected_gpus: tuple[int, ...] = option(
        (),
        "GPUs of this machine to use, split evenly over its workers; empty: all, which "
        "needs num_workers=1 (PLSC selected_gpus)",
        lower=0,
        saved=False,
    )
    log_dir: str = option(
        "",
        "folder of one log per worker, worker-0.log and so on; the terminal shows the "
        "first one of this machine. Empty: no files, the terminal shows all (Paddle "
        "log_dir)",
        saved=False,
    )
    max_restarts: int = option(
        0,
        "how often all workers are started again after one failed; a training goes on "
        "from its last checkpoint",
        lower=0,
        saved=False,
    )
    module: str = option(
        "plsc_tf.train",
        "Python module that the workers run, such as plsc_tf.evaluate, when the first "
        "word after -- is no script",
        saved=False,
        applies="no script",
    )

    def __post_init__(self):
        super().__post_init__()
        if len(set(self.selected_gpus)) < len(self.selected_gpus):
            raise ValueError(
                "selected_gpus names a GPU twice. Received: selected_gpus="
                f"{','.join(map(str, self.selected_gpus))}."
            )
