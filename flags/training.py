"""How long, from what and in which batches to train."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Training(OptionGroup):
    """The start, the length, the batches and the randomness of a training."""

    task_type: str = option(
        "pretrain",
        "pretrain, or finetune: start from the weights in checkpoint_dir (FastNN "
        "task_type)",
        choices=("pretrain", "finetune"),
    )
    num_epochs: int = option(
        120,
        "epochs to train (PLSC train_epochs; FastNN num_epochs, 100)",
        lower=1,
        aliases=("train_epochs",),
    )
    stop_at_step: int = option(
        0,
        "stop after this step; 0: num_epochs decides (FastNN stop_at_step, 100)",
        lower=0,
        applies="hooks=StopAtStepHook",
    )
    batch_size: int = option(
        128,
        "images per replica and step (PLSC train_batch_size; FastNN batch_size, 32)",
        lower=1,
        aliases=("train_batch_size",),
        applies="no global_batch_size",
    )
    global_batch_size: int = option(
        0,
        "images per step over all replicas; 0: batch_size x replicas. A resumed run "
        "keeps it on any number of replicas",
        lower=0,
    )
    seed: int = option(
        0, "seed of weights, data order, augmentation and dropout", lower=0
    )
    deterministic: bool = option(
        False,
        "only operations with the same results in every run, bit for bit; slower on "
        "GPUs",
    )

    REFUSED = {
        "task_type=finetune and no checkpoint_dir": "task_type=finetune starts from "
        "trained weights: set checkpoint_dir to their folder.",
    }
