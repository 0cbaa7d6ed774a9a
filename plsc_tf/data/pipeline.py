"""Batches: an endless supply of epochs, each in a stateless order.

The order of epoch e and every augmentation in it follow from (seed, e, position)
alone. `epoch(e, start_step=k)` is therefore exactly what remains of `epoch(e)`
after k steps, in this process or another one.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from plsc_tf.data import cache, faults
from plsc_tf.data.blocks import block_size, dense, filled_up, make_pictures
from plsc_tf.data.chance import chances
from plsc_tf.data.pipeline_options import PipelineOptions, dataset_options
from plsc_tf.data.source import (
    FILE_ORDER,
    Order,
    Source,
    mix_seeds,
    on_host,
    without_autograph,
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
        self.options = (options or PipelineOptions()).for_batches_of(batch_size)
        self._preprocessing = self.options.build_preprocessing()
        if self.options.skip_bad_records:
            source = faults.Tolerant(source, self._kept, self._kept_size)
        self.source = source
        self.batch_size = batch_size
        self._cached: Source | None = None
        self._functions = {}

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
    def skipped(self) -> dict[int, str]:
        """What is wrong with the records left out so far, by their numbers."""
        return getattr(self.source, "skipped", {})

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
            except faults.READ_ERRORS as error:
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
        if (options.use_caching or options.cache_dir) and self._cached is None:
            self._cached = self._fill_cache()
        source = self._cached or self.source
        start = start_step * self.batch_size
        size = block_size(self.batch_size, self.image_size)
        per_batch = self.batch_size // size
        seed = on_host(np.int64(mix_seeds(options.seed, epoch, 1)))
        block = self._block_function(source, size)
        batches = (
            source.blocks(size, self._order(epoch, start))
            .enumerate()
            .map(
                without_autograph(
                    lambda number, entries: block(entries, seed, start + number * size)
                ),
                num_parallel_calls=min(
                    options.num_preprocessing_threads,
                    options.num_parallel_batches * per_batch,
                ),
            )
        )
        if per_batch > 1:
            batches = batches.batch(per_batch, num_parallel_calls=2)
            batches = batches.map(without_autograph(self._joined))
        else:
            batches = batches.map(lambda pictures, labels, count: (pictures, labels))
        batches = batches.prefetch(options.prefetch_buffer_size)
        return batches.with_options(dataset_options())

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
        return faults.first_fault(
            self.source,
            self._order(epoch, start_step * self.batch_size),
            self._kept,
            self.num_classes,
            max_steps * self.batch_size,
        )

    def _order(self, epoch: int, start: int) -> Order:
        options = self.options
        return Order(
            seed=options.seed,
            epoch=epoch,
            start=start,
            shuffle=options.shuffle,
            shuffle_buffer_size=options.shuffle_buffer_size,
            sampling=options.sampling,
            images_per_identity=options.images_per_identity,
            batch_size=self.batch_size,
        )

    @property
    def _kept_size(self) -> tuple[int, int]:
        made = self._preprocessing
        return made.kept_size if self.options.training else made.image_size

    def _kept(self, image) -> tf.Tensor:
        """Decodes one picture to the fixed size that is augmented: uint8 [h, w, 3]."""
        image = dense(image)
        made = self._preprocessing
        return made.keep(image) if self.options.training else made.evaluate(image)

    def _block_function(self, source: Source, size: int):
        """A function of a block's entries, the epoch's seed and the first position.

        It is traced once for all epochs, which takes longer than a few batches.
        """
        key = (id(source), size)
        if key not in self._functions:
            self._functions[key] = tf.function(
                self._make_block_function(source, size), autograph=False
            )
        return self._functions[key]

    def _make_block_function(self, source: Source, size: int):
        training, made = self.options.training, self._preprocessing
        # A cache, and a source that leaves out bad records, hold framed pictures.
        framed = source is not self.source or self.options.skip_bad_records

        def block(entries, seed, first):
            item = source.read(entries)
            labels = self._checked(item["label"])
            count = tf.size(labels, tf.int64)
            decisions = {}
            if training:
                decisions = made.decide(chances(seed, first, count))
            pictures = make_pictures(
                item["image"],
                decisions,
                made,
                training=training,
                framed=framed,
            )
            if size < self.batch_size:
                # To be stacked with the other blocks of the batch.
                pictures, labels = filled_up(pictures, labels, size)
            return pictures, labels, count

        return block

    def _checked(self, labels: tf.Tensor) -> tf.Tensor:
        """The labels, or an error when one of them is out of range."""
        limit = self.num_classes or tf.int64.max
        good = tf.reduce_all((labels >= 0) & (labels < limit))
        check = tf.debugging.Assert(good, ["label out of range", labels])
        with tf.control_dependencies([check] if check is not None else []):
            return tf.identity(labels)

    def _joined(self, pictures, labels, count):
        """Blocks of a batch as one, without what the last one was filled up with."""
        total = tf.reduce_sum(count)
        pictures = tf.reshape(pictures, [-1, *self.image_size, 3])[:total]
        return pictures, tf.reshape(labels, [-1])[:total]

    def _made(self) -> str:
        """How the pictures of a cache are made, in words."""
        purpose = "training" if self.options.training else "evaluation"
        return f"{self.options.preprocessing}, for {purpose}, {self._kept_size}"

    def _fill_cache(self) -> Source:
        """Decodes and resizes every picture once, in the order of the files."""
        spec = tf.TensorSpec([*self._kept_size, 3], tf.uint8)

        def decoded(entries):
            item = self.source.read(entries)
            pictures = tf.map_fn(self._kept, item["image"], fn_output_signature=spec)
            return pictures, self._checked(item["label"])

        blocks = self.source.blocks(64, FILE_ORDER).map(
            without_autograph(decoded),
            num_parallel_calls=self.options.num_preprocessing_threads,
        )
        blocks = blocks.prefetch(1).with_options(dataset_options())
        try:
            if self.options.cache_dir:
                return cache.on_disk(
                    self.source, blocks, self.options.cache_dir, self._made()
                )
            return cache.in_memory(self.source, blocks)
        except faults.READ_ERRORS as error:
            unshuffled = dataclasses.replace(self.options, shuffle=False)
            walk = Batches(self.source, 1, options=unshuffled)
            raise (walk.explain(0, max_steps=2**40) or error) from error
