"""How checkpoints are written, and what happens to bad ones."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Saving(OptionGroup):
    """How checkpoints are written and read."""

    save_checkpoints_epochs: int = option(
        1,
        "epochs between two checkpoints; 0: only by steps and at the end",
        lower=0,
        applies="hooks=CheckpointSaverHook",
    )
    save_weights_only: bool = option(
        False,
        "checkpoints without what only a resume needs (optimizer, random states), "
        "which no training can go on from",
    )
    save_best: bool = option(
        False,
        "keep the weights of the epoch with the best mean accuracy in verification in "
        "model_save_dir/best",
        applies="with_test and val_targets",
    )
    save_in_background: bool = option(
        True,
        "train on while a checkpoint is written, which takes memory for at most one "
        "copy of weights and optimizer state; false: training waits, without a copy",
    )
    on_save_error: str = option(
        "stop",
        "when a checkpoint cannot be written (disk full, server gone): stop, or "
        "continue without it; older ones stay as they are",
        choices=("stop", "continue"),
    )
    on_damaged_checkpoint: str = option(
        "stop",
        "when the newest checkpoint is not what was written: stop, or go on from the "
        "previous one that is whole; nothing is deleted",
        choices=("stop", "previous"),
    )
    allow_changes: tuple[str, ...] = option(
        (),
        "options whose change gives a resumed run another meaning, and that may change "
        "all the same, as loss_type,margin; without it such a change is an error, that "
        "of numbers as the learning rate is logged",
        saved=False,
        applies="resumed",
    )
    prove_resume: int = option(
        0,
        "train: only prove that a resume is exact. Trains twice this many steps at "
        "once, then again with a stop after half of them, and compares losses and "
        "weights bit for bit; in folders of its own below model_save_dir",
        lower=0,
        saved=False,
    )
