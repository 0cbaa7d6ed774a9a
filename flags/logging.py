"""What a run reports, and when it stops."""

import dataclasses

from plsc_tf.options import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Logging(OptionGroup):
    """Progress and TensorBoard."""

    stop_at_step: int = option(
        0,
        "stop after so many steps; 0: num_epochs decides (FastNN stop_at_step, 100)",
        lower=0,
    )
    log_loss_every_n_iters: int = option(
        10,
        "steps between two lines of progress (FastNN log_loss_every_n_iters)",
        lower=1,
    )
    tensorboard: bool = option(True, "write TensorBoard scalars into model_save_dir")
    save_losses: bool = option(
        False,
        "write every step's loss, exact to the last bit, into losses.txt of the run",
    )
