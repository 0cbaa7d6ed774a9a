"""The devices of a run."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Performance(OptionGroup):
    """Replicas, the random seed, and the plan of their memory."""

    num_replicas: int = option(
        0,
        "replicas: so many GPUs, or logical CPU devices where there is no GPU; 0: all "
        "GPUs, else one CPU device. In a cluster, GPUs of each worker; without GPUs a "
        "worker is one replica",
        lower=0,
    )
    steps_per_execution: int = option(
        1,
        "training steps per call of one TensorFlow function; the training is the same, "
        "and SIGTERM waits for the end of a call. Only outside clusters (Keras "
        "steps_per_execution, MindSpore sink_size)",
        lower=1,
        aliases=("sink_size",),
    )
    dry_run: bool = option(
        False,
        "train: only plan the memory of a step and print it, with the largest number "
        "of classes that fits; nothing is trained, read or written. The exit status "
        "is 1 where it does not fit",
        saved=False,
    )
    json: bool = option(
        False,
        "dry_run: print the plan as one JSON object instead of tables",
        saved=False,
        applies="dry_run",
    )
    device_memory_gb: float | None = option(
        None,
        "dry_run: memory of each replica's device in GB (10^9 bytes); None: that of "
        "the GPU, or an equal share of this machine's",
        lower=0,
        open_ends="lower",
        saved=False,
        applies="dry_run",
    )
