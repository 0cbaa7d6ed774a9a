"""How long, from what, in which batches and on which devices to train."""

from plsc_tf.flags.option import OptionGroup, option


class Training(OptionGroup):
    """The start, the length, the batches and the randomness of a training."""

    task_type: str = option(
        "pretrain",
        "pretrain, or finetune: start from the weights in checkpoint_dir (FastNN)",
        choices=("pretrain", "finetune"),
    )
    num_epochs: int = option(
        120, "epochs to train (PLSC; FastNN)", lower=1, aliases=("train_epochs",)
    )
    stop_at_step: int = option(
        0,
        "stop after this step; 0: num_epochs decides (FastNN)",
        lower=0,
        applies="hooks=StopAtStepHook",
    )
    batch_size: int = option(
        128,
        "images per replica and step (PLSC train_batch_size; FastNN)",
        lower=1,
        aliases=("train_batch_size",),
        applies="no global_batch_size",
    )
    global_batch_size: int = option(
        0, "images per step over all replicas; 0: batch_size x replicas", lower=0
    )
    seed: int = option(0, "seed of weights, order, augmentation and dropout", lower=0)
    deterministic: bool = option(False, "the same results in every run, bit for bit")

    REFUSED = {
        "task_type=finetune and no checkpoint_dir": "task_type=finetune starts from "
        "trained weights: set checkpoint_dir to their folder.",
    }


class Performance(OptionGroup):
    """Replicas, steps per call, and the plan of their memory."""

    num_replicas: int = option(
        0,
        "GPUs (of each worker), or logical CPU devices; 0: all GPUs, or one CPU",
        lower=0,
    )
    steps_per_execution: int = option(
        1,
        "steps per call of one TensorFlow function (Keras; MindSpore sink_size)",
        lower=1,
        aliases=("sink_size",),
    )
    dry_run: bool = option(
        False, "only plan the memory of a step, and how many classes fit", saved=False
    )
    json: bool = option(
        False, "print the plan as one JSON object", saved=False, applies="dry_run"
    )
    device_memory_gb: float | None = option(
        None,
        "memory of each replica's device in GB (10^9 bytes); None: this machine's",
        within="(0, inf)",
        saved=False,
        applies="dry_run",
    )
