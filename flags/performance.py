"""Devices, the length of a call, and the plan of a step's memory."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Performance(OptionGroup):
    """Replicas, steps per call, and the plan of their memory."""

    num_replicas: int = option(
        0,
        "replicas: number of GPUs, or of logical CPU devices without a GPU; 0: all "
        "GPUs, else one CPU device. In a cluster, GPUs of each worker; a worker "
        "without GPUs is one replica",
        lower=0,
    )
    steps_per_execution: int = option(
        1,
        "training steps per call of one TensorFlow function; the training is the same, "
        "and SIGTERM waits for the end of a call. Not in clusters (Keras "
        "steps_per_execution, MindSpore sink_size)",
        lower=1,
        aliases=("sink_size",),
    )
    dry_run: bool = option(
        False,
        "train: only plan the memory of a step and print it, with the largest number "
        "of classes that fits; nothing is trained, read or written. The exit status "
        "is 1 if it does not fit",
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
        within="(0, inf)",
        saved=False,
        applies="dry_run",
    )
