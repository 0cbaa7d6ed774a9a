"""Batches: an endless supply of epochs, each in a stateless order.

The order of epoch e and every augmentation in it follow from (seed, e, position)
alone. `epoch(e, start_step=k)` is therefore exactly what remains of `epoch(e)`
after k steps, in this process or another one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

import numpy as np
import tensorflow as tf

from plsc_tf.data import cache, faults
from plsc_tf.data.blocks import block_size, dense, filled_up, make_pictures
from plsc_tf.data.chance import chances
from plsc_tf.data.part import Part
from plsc_tf.data.pipeline_options import PipelineOptions, dataset_options
from plsc_tf.data.source import (
    FILE_ORDER,
    Order,
    Source,
    mix_seeds,
    on_host,
    without_autograph,
)

# Options that change no batch.
_OF_THE_MACHINE = (
    "num_parallel_batches",
    "prefetch_buffer_size",
    "num_preprocessing_threads",
    "use_caching",
    "cache_dir",
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
            source = faults.without_bad_records(source, self._kept, self._kept_size)
        self.source = source
        self.batch_size = batch_size
        self._cached: Source | None = None
        self._functions = {}

    @property
    def num_classes(self) -> int | None:
        """Number of classes, None if unknown."""
        return self.source.num_classes

    @property
    def num_examples(self) -> int | None:
        """Number of examples of an epoch, None if unknown."""
        if self._cached is not None:
            return self._cached.num_examples
        return self.source.num_examples

    @property
    def skipped(self) -> dict[int, str]:
        """What is wrong with the records left out so far, by their numbers."""
        return getattr(self.source, "skipped", {})

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) of the images in a batch."""
        return self.options.image_size

    @property
    def steps_per_epoch(self) -> int | None:
        """Batches of an epoch, the smaller last one included; None if unknown."""
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

    def in_order(self) -> Batches:
        """The same images in the order of the files, without augmentation."""
        if not (self.options.training or self.options.shuffle):
            return self
        options = dataclasses.replace(
            self.options,
            training=False,
            shuffle=False,
            sampling="uniform",
            use_caching=False,
            cache_dir="",
            # The source is tolerant already.
            skip_bad_records=False,
        )
        return Batches(self.source, self.batch_size, options=options)

    def epoch(self, epoch: int, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from a step on.

        Args:
            epoch: number of the epoch, from 0.
            start_step: batches of this epoch to leave out.

        Returns:
            tf.data.Dataset of (uint8 [batch, h, w, 3], int64 [batch]); the last batch
            may be smaller.
        """
        order = self._order(epoch, start_step)
        return self._batches(order, self.batch_size, self._without_filling)

    def part_of_epoch(
        self, epoch: int, start_step: int = 0, *, part: Part
    ) -> tf.data.Dataset:
        """Returns what one of several workers sees of the batches of an epoch.

        Args:
            epoch: number of the epoch, from 0.
            start_step: batches of this epoch to leave out.
            part: which positions of each padded global batch.

        Returns:
            tf.data.Dataset of (uint8 [part.size, h, w, 3], int64 [part.size],
            float32 [part.size], the weights), one for each batch of `epoch`.
        """
        order = self._order(epoch, start_step, part)

        def full(pictures, labels, weights):
            shape = [part.size, *self.image_size, 3]
            return tf.reshape(pictures, shape), *(
                tf.reshape(each, [part.size]) for each in (labels, weights)
            )

        return self._batches(order, part.size, full)

    def _batches(self, order: Order, count: int, finish) -> tf.data.Dataset:
        """Batches of `count` examples, in blocks that `finish` joins."""
        options = self.options
        if (options.use_caching or options.cache_dir) and self._cached is None:
            self._cached = self._fill_cache()
        source = self._cached or self.source
        size = block_size(count, self.image_size)
        per_batch = count // size
        seed = on_host(np.int64(mix_seeds(options.seed, order.epoch, 1)))
        block = self._block_function(source, size)
        batches = source.blocks(size, order).map(
            without_autograph(lambda entries: block(entries, seed)),
            num_parallel_calls=min(
                options.num_preprocessing_threads,
                options.num_parallel_batches * per_batch,
            ),
        )
        if per_batch > 1:
            batches = batches.batch(per_batch, num_parallel_calls=2)
        batches = batches.map(without_autograph(finish))
        batches = batches.prefetch(options.prefetch_buffer_size)
        return batches.with_options(dataset_options())

    def explain(
        self,
        epoch: int,
        start_step: int = 0,
        *,
        max_steps: int = 64,
        part: Part | None = None,
    ) -> ValueError | None:
        """Looks for the example that made TensorFlow fail.

        Walks the same order one example at a time, because an error from inside
        tf.data names an op, not a file.

        Args:
            epoch: the epoch that failed.
            start_step: the step that failed, or one before it.
            max_steps: batches to look through.
            part: of each batch, what to look through; None: all of it.

        Returns:
            An error that names the example and says what to do, or None when all
            of them can be read.
        """
        return faults.first_fault(
            self.source,
            self._order(epoch, start_step, part),
            self._kept,
            self.num_classes,
            max_steps * (self.batch_size if part is None else part.size),
        )

    def fingerprint(self) -> str:
        """A text that is the same where the same examples come in the same order.

        Places and times of files are left out, so that copies on several machines
        are the same. Reads no examples.
        """
        known = dataclasses.asdict(self.options)
        for name in _OF_THE_MACHINE:
            del known[name]
        known = json.dumps({**known, "batch_size": self.batch_size}, sort_keys=True)
        options = hashlib.sha256(known.encode()).hexdigest()
        return (
            f"examples: {self.source.num_examples or 'unknown'}, "
            f"classes: {self.num_classes or 'unknown'}, "
            f"contents: {self.source.contents()[:16]}, options: {options[:16]}"
        )

    def _order(self, epoch: int, start_step: int, part: Part | None = None) -> Order:
        options = self.options
        if part is not None and part.padded < self.batch_size:
            raise ValueError(
                "A padded batch must hold the batch. Received: "
                f"padded={part.padded}, batch_size={self.batch_size}."
            )
        return Order(
            seed=options.seed,
            epoch=epoch,
            start=start_step * self.batch_size,
            shuffle=options.shuffle,
            shuffle_buffer_size=options.shuffle_buffer_size,
            sampling=options.sampling,
            images_per_identity=options.images_per_identity,
            batch_size=self.batch_size,
            part=part,
        )

    @property
    def _kept_size(self) -> tuple[int, int]:
        made = self._preprocessing
        return made.kept_size if self.options.training else made.image_size

    def _kept(self, image) -> tf.Tensor:
        """Decodes one image to the fixed size that is augmented: uint8 [h, w, 3]."""
        image = dense(image)
        made = self._preprocessing
        return made.keep(image) if self.options.training else made.evaluate(image)

    def _block_function(self, source: Source, size: int):
        """A function of a block's entries and the epoch's seed.

        It is traced once for all epochs, which takes longer than a few batches.
        """
        key = (id(source), size)
        if key in self._functions:
            return self._functions[key]
        training, made = self.options.training, self._preprocessing
        # A cache, and a source without its bad records, hold framed images.
        framed = source is not self.source or self.options.skip_bad_records

        def block(entries, seed):
            item = source.read(entries)
            decisions = {}
            if training:
                decisions = made.decide(chances(seed, entries["position"]))
            pictures = make_pictures(
                item["image"], decisions, made, training=training, framed=framed
            )
            parts = pictures, self._checked(item["label"]), entries["weight"]
            # To be stacked with the other blocks of the batch.
            return filled_up(parts, size) if size < self.batch_size else parts

        self._functions[key] = tf.function(block, autograph=False)
        return self._functions[key]

    def _checked(self, labels: tf.Tensor) -> tf.Tensor:
        """The labels, or an error when one of them is out of range."""
        limit = self.num_classes or tf.int64.max
        good = tf.reduce_all((labels >= 0) & (labels < limit))
        check = tf.debugging.Assert(good, ["label out of range", labels])
        with tf.control_dependencies([check] if check is not None else []):
            return tf.identity(labels)

    def _without_filling(self, pictures, labels, weights):
        """Blocks of a batch as one, without what the last one was filled up with."""
        total = tf.math.count_nonzero(weights)
        pictures = tf.reshape(pictures, [-1, *self.image_size, 3])[:total]
        return pictures, tf.reshape(labels, [-1])[:total]

    def _made(self) -> str:
        """How the images of a cache are made, in words."""
        purpose = "training" if self.options.training else "evaluation"
        return f"{self.options.preprocessing}, for {purpose}, {self._kept_size}"

    def _fill_cache(self) -> Source:
        """Decodes and resizes every image once, in the order of the files."""
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
