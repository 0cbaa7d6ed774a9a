"""How examples become batches, as options."""

from __future__ import annotations

import dataclasses
import os

import tensorflow as tf

from plsc_tf.data import preprocessing, sampling
from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.request import check_image_size

# Batches kept ready take at most this much memory when their number is not given.
_READY_BYTES = 2**28


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """How examples become batches; the names of FastNN's knobs are kept.

    Args:
        image_size: (height, width) of the batches, in pixels.
        preprocessing: how an image becomes one of this size, by name; see
            `plsc_tf.data.preprocessing`.
        augmentation: what may happen to an image at random; "own": what the
            preprocessing does by itself; None: nothing.
        training: False frames the images as for evaluation, nothing is random.
        shuffle: whether the order changes from epoch to epoch; False keeps the
            order of the files.
        seed: of the order and of the augmentation.
        shuffle_buffer_size: encoded records that a stream is shuffled through;
            lists and folders are shuffled as a whole.
        sampling: how often an example comes in an epoch: "uniform", "class_balanced"
            or "per_identity"; see `plsc_tf.data.sampling`.
        images_per_identity: for the last of them.
        num_parallel_batches: batches put together at the same time; None, here and
            for the next two: what suits the machine.
        prefetch_buffer_size: batches kept ready.
        num_preprocessing_threads: images decoded at the same time.
        use_caching: keeps the decoded, resized images in memory: 3 * height *
            width bytes each, three times as much while they are put there.
        cache_dir: keeps them in a file below this folder instead, which later runs
            find again.
        skip_bad_records: whether a record that cannot be read is replaced by the next
            good one and named in the log; else it is an error.
    """

    image_size: tuple[int, int] = (112, 112)
    preprocessing: str = "none"
    augmentation: Augmentation | str | None = None
    training: bool = True
    shuffle: bool = True
    seed: int = 0
    shuffle_buffer_size: int = 1024
    sampling: str = "uniform"
    images_per_identity: int = 4
    num_parallel_batches: int | None = 8
    prefetch_buffer_size: int | None = 32
    num_preprocessing_threads: int | None = 16
    use_caching: bool = False
    cache_dir: str = ""
    skip_bad_records: bool = False

    def __post_init__(self):
        object.__setattr__(self, "image_size", check_image_size(self.image_size))
        # Raises where one of them is wrong.
        self.build_preprocessing()
        if self.seed < 0:
            raise ValueError(f"seed must not be negative. Received: seed={self.seed}.")
        for name in (
            "shuffle_buffer_size",
            "num_parallel_batches",
            "prefetch_buffer_size",
            "num_preprocessing_threads",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be positive. Received: {name}={value}.")
        if self.sampling not in sampling.SAMPLINGS:
            raise ValueError(
                f"sampling must be one of {', '.join(sampling.SAMPLINGS)}. "
                f"Received: sampling={self.sampling!r}."
            )

    def for_batches_of(self, batch_size: int) -> PipelineOptions:
        """Returns the same with numbers in place of None.

        Args:
            batch_size: images per batch, over all replicas.
        """
        height, width = self.image_size
        ready = _READY_BYTES // (3 * height * width * batch_size)
        return dataclasses.replace(
            self,
            num_parallel_batches=self.num_parallel_batches or 2,
            prefetch_buffer_size=self.prefetch_buffer_size or min(max(2, ready), 32),
            num_preprocessing_threads=self.num_preprocessing_threads or _cores(),
        )

    def build_preprocessing(self) -> preprocessing.Preprocessing:
        """Returns the preprocessing that these options describe."""
        return preprocessing.build(
            self.preprocessing, self.image_size, self.augmentation
        )


def _cores() -> int:
    """Cores that this process may use; those of the machine where it cannot be told."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def dataset_options() -> tf.data.Options:
    """Options of every data set here: nothing is rewritten, tuned or sharded."""
    options = tf.data.Options()
    options.deterministic = True
    # TensorFlow's graph rewrites copy every captured table and cached image for
    # each epoch, and rewrite nothing that is written out here already.
    options.experimental_optimization.apply_default_optimizations = False
    # Autotuning plans in a thread that the end of every epoch waits for: up to two
    # minutes here. The degrees of parallelism are options anyway.
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    return options
