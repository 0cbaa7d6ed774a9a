"""The devices of a run."""

import dataclasses

from plsc_tf.options import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Performance(OptionGroup):
    """Replicas and the random seed."""

    num_replicas: int = option(
        0,
        "replicas: so many GPUs, or logical CPU devices where there is no GPU; 0: all "
        "GPUs, else one CPU device",
        lower=0,
    )
    seed: int = option(
        0, "seed of weights, data order, augmentation and dropout", lower=0
    )
