"""Batches: an endless supply of epochs, each in a stateless order.

The order of epoch e and every augmentation in it follow from (seed, e, position)
alone. `epoch(e, start_step=k)` is therefore exactly what remains of `epoch(e)`
after k steps, in this process or another one.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data import images
from plsc_tf.data.request import check_image_size
from plsc_tf.data.source import Source, label_error, mix_seeds, on_host

_MEGABYTE = 2**20


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """How examples become batches; the names of FastNN's knobs are kept.

    Args:
        image_size: (height, width) of the batches, in pixels.
        augmentation: what may happen to a picture, or None.
        shuffle: whether the order changes from epoch to epoch; False keeps the
            order of the files.
        seed: of the order and of the augmentation.
        shuffle_buffer_size: encoded records that a stream is shuffled through;
            lists and folders are shuffled as a whole.
        num_parallel_batches: batches put together at the same time.
        prefetch_buffer_size: batches kept ready.
        num_preprocessing_threads: pictures decoded at the same time.
        use_caching: keeps the decoded, resized pictures in memory: 3 * height *
            width bytes each, three times as much while they are put there.
    """

    image_size: tuple[int, int] = (112, 112)
    augmentation: images.Augmentation | None = None
    shuffle: bool = True
    seed: int = 0
    shuffle_buffer_size: int = 1024
    num_parallel_batches: int = 8
    prefetch_buffer_size: int = 32
    num_preprocessing_threads: int = 16
    use_caching: bool = False

    def __post_init__(self):
        object.__setattr__(self, "image_size", check_image_size(self.image_size))
        object.__setattr__(
            self, "augmentation", images.Augmentation.named(self.augmentation)
        )
        if self.seed < 0:
            raise ValueError(f"seed must not be negative. Received: seed={self.seed}.")
        for name in (
            "shuffle_buffer_size",
            "num_parallel_batches",
            "prefetch_buffer_size",
            "num_preprocessing_threads",
        ):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"{name} must be positive. Received: {name}={getattr(self, name)}."
                )


class Batches:
    """Batches of a source, epoch by epoch.

    Iterating over the object gives epoch 0 and turns TensorFlow's errors into one
    that names the image.

    Args:
        source: where the examples come from.
        batch_size: images per batch, over all replicas.
        options: how examples become batches.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        *,
        options: PipelineOptions | None = None,
    ):
        if batch_size < 1:
            raise ValueError(
                f"batch_size must be positive. Received: batch_size={batch_size}."
            )
        self.source = source
        self.batch_size = batch_size
        self.options = options or PipelineOptions()
        self._cached: Source | None = None

    @property
    def num_classes(self) -> int | None:
        """Number of classes, None when the source does not know."""
        return self.source.num_classes

    @property
    def num_examples(self) -> int | None:
        """Number of examples of an epoch, None when the source does not know."""
        if self._cached is not None:
            return self._cached.num_examples
        return self.source.num_examples

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) of the pictures in a batch."""
        return self.options.image_size

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches of an epoch, the smaller last one included; None when unknown."""
        if self.num_examples is None:
            return None
        return -(-self.num_examples // self.batch_size)

    @property
    def element_spec(self):
        """Specs of a batch: uint8 [batch, h, w, 3] and int64 [batch]."""
        return (
            tf.TensorSpec([None, *self.image_size, 3], tf.uint8),
            tf.TensorSpec([None], tf.int64),
        )

    def __len__(self) -> int:
        if self.steps_per_epoch is None:
            raise TypeError(
                f"The number of batches is not known: {self.source.name} does not "
                "say how many examples it has. Give num_examples to the source."
            )
        return self.steps_per_epoch

    def __iter__(self):
        iterator = iter(self.epoch(0))
        for step in range(2**62):
            try:
                batch = next(iterator)
            except StopIteration:
                return
            except tf.errors.OpError as error:
                raise (self.explain(0, step) or error) from error
            yield batch

    def epoch(self, epoch: int, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from a step on.

        Args:
            epoch: number of the epoch, from 0.
            start_step: batches of this epoch to leave out.

        Returns:
            tf.data.Dataset of (uint8 [batch, h, w, 3], int64 [batch]); the last batch
            may be smaller.
        """
        options = self.options
        if options.use_caching and self._cached is None:
            self._cached = self._fill_cache()
        source = self._cached or self.source
        epoch_seed = on_host(np.int64(mix_seeds(options.seed, epoch, 1)))
        start = start_step * self.batch_size

        def example(position, entry):
            return self._example(source.read(entry), tf.stack([epoch_seed, position]))

        batches = (
            self._entries(source, epoch, start)
            .enumerate(start=start)
            .map(example, num_parallel_calls=options.num_preprocessing_threads)
            .batch(self.batch_size, num_parallel_calls=options.num_parallel_batches)
            .prefetch(options.prefetch_buffer_size)
        )
        return batches.with_options(_dataset_options())

    def explain(
        self, epoch: int, start_step: int = 0, *, max_steps: int = 64
    ) -> ValueError | None:
        """Looks for the example that made TensorFlow fail.

        Walks the same order one example at a time, because an error from inside
        tf.data names an op, not a file.

        Args:
            epoch: the epoch that failed.
            start_step: the step that failed, or one before it.
            max_steps: batches to look through.

        Returns:
            An error that names the example and says what to do, or None when all
            of them can be read.
        """
        start = start_step * self.batch_size
        iterator = iter(self._entries(self.source, epoch, start))
        for position in range(start, start + max_steps * self.batch_size):
            try:
                entry = next(iterator)
            except StopIteration:
                return None
            except tf.errors.OpError as error:
                return ValueError(
                    f"{self.source.name} cannot be read on at position {position} of "
                    f"epoch {epoch}: {reason(error)}"
                )
            error = self._fault(entry)
            if error is not None:
                return error
        return None

    def _fault(self, entry: dict) -> ValueError | None:
        """Returns what is wrong with one example, or None."""
        where = self.source.describe(int(entry["index"]))
        try:
            item = self.source.read(entry)
            images.resize(images.to_rgb(item["image"]), self.image_size)
        except tf.errors.NotFoundError as error:
            return ValueError(
                f"There is no file for {where}: {reason(error)} "
                "Put the file there, or take it out of the list."
            )
        except (tf.errors.OpError, ValueError) as error:
            return ValueError(
                f"The image cannot be read: {where}: {reason(error)} "
                "Expected JPEG, PNG or GIF. Replace it or take it out."
            )
        label = int(item["label"])
        if label < 0 or label >= (self.num_classes or 2**63):
            return label_error(label, where, self.num_classes)
        return None

    def _entries(self, source: Source, epoch: int, start: int) -> tf.data.Dataset:
        return source.entries(
            seed=self.options.seed,
            epoch=epoch,
            start=start,
            shuffle=self.options.shuffle,
            shuffle_buffer_size=self.options.shuffle_buffer_size,
        )

    def _example(self, item: dict, seed: tf.Tensor):
        """One example: decoded, resized, augmented; the label checked."""
        image = images.resize(images.to_rgb(item["image"]), self.image_size)
        if self.options.augmentation is not None:
            image = images.augment(image, seed, self.options.augmentation)
        label = item["label"]
        limit = self.num_classes or tf.int64.max
        check = tf.debugging.Assert(
            (label >= 0) & (label < limit), ["label out of range", label]
        )
        with tf.control_dependencies([check] if check is not None else []):
            return tf.ensure_shape(image, [*self.image_size, 3]), tf.identity(label)

    def _fill_cache(self) -> Source:
        """Decodes and resizes every picture once, in the order of the files."""
        size, known = self.image_size, self.source.num_examples

        def decoded(entry):
            item = self.source.read(entry)
            return images.resize(images.to_rgb(item["image"]), size), item["label"]

        entries = self.source.entries(seed=0, epoch=0, shuffle=False)
        dataset = entries.map(
            decoded, num_parallel_calls=self.options.num_preprocessing_threads
        )
        dataset = dataset.batch(64).prefetch(1).with_options(_dataset_options())
        pictures = np.empty((known or 1024, *size, 3), np.uint8)
        labels = np.empty(len(pictures), np.int64)
        count = 0
        try:
            for some, some_labels in dataset.as_numpy_iterator():
                if count + len(some) > len(pictures):
                    pictures = _grown(pictures)
                    labels = _grown(labels)
                pictures[count : count + len(some)] = some
                labels[count : count + len(some)] = some_labels
                count += len(some)
        except tf.errors.OpError as error:
            unshuffled = dataclasses.replace(self.options, shuffle=False)
            walk = Batches(self.source, 1, options=unshuffled)
            raise (walk.explain(0, count, max_steps=64) or error) from error
        logging.info(
            "%s: %d pictures kept in memory, %.0f MB",
            self.source.name,
            count,
            pictures[:count].nbytes / _MEGABYTE,
        )
        return self.source.with_arrays(
            on_host(pictures[:count]), on_host(labels[:count])
        )


def reason(error: Exception) -> str:
    """TensorFlow's message without the names of nodes and ops; one sentence."""
    text = getattr(error, "message", None) or str(error)
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*?\]", " ", text).strip()
    text = " ".join(text.split("\n")[0].split())
    return text if text.endswith(".") else text + "."


def _grown(array: np.ndarray) -> np.ndarray:
    """Returns a copy with twice the room, for sources of unknown length."""
    larger = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _dataset_options() -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = True
    # TensorFlow's graph rewrites copy every captured table and cached picture for
    # each epoch, and rewrite nothing that is written out here already.
    options.experimental_optimization.apply_default_optimizations = False
    # Autotuning plans in a thread that the end of every epoch waits for: up to two
    # minutes here. The degrees of parallelism are options anyway.
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    return options
