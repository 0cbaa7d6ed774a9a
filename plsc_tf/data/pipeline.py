"""Turns a source into batches, epoch by epoch, in a stateless order.

The order of epoch e depends only on (seed, e), and the augmentation of an example only
on (seed, e, its position in that order).
`epoch(e, start_step=k)` therefore returns exactly the batches that `epoch(e)` returns
after its first k, in this process or any other.
"""

import dataclasses
import functools
import hashlib
import json
import os

import numpy as np
import tensorflow as tf

from plsc_tf.data import cache, faults, preprocessing, source as sources
from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.blocks import block_size, chances, make_images
from plsc_tf.data.image_limit import MAX_MEGAPIXELS, checked, jpeg_sizes
from plsc_tf.data.sampling import FILE_ORDER, SAMPLINGS, Order, Part
from plsc_tf.data.source import Source
from plsc_tf.requirements import check_image_size, check_least, require, require_one_of

# Prefetched batches take at most this many bytes if their number is not set, but at
# least two are prefetched.
_READY_BYTES = 2**28
# Options that do not affect the contents of a batch.
_OF_THE_MACHINE = (
    *("num_parallel_batches", "prefetch_buffer_size", "num_preprocessing_threads"),
    *("use_caching", "cache_dir", "max_megapixels"),
)


@dataclasses.dataclass(frozen=True)
class PipelineOptions:
    """Options of the input pipeline, with FastNN's names for those that FastNN has.

    Args:
        image_size: (height, width) of the batches, in pixels.
        preprocessing: name of the preprocessing that brings an image to this size;
            see `plsc_tf.data.preprocessing`.
        augmentation: random changes to the images, or the name of a preprocessing that
            has them; "own" for the preprocessing's own, None for no augmentation.
        training: whether to crop, resize and augment images for training; False crops
            and resizes them for evaluation, without randomness.
        shuffle: whether to shuffle each epoch differently; False keeps the order of
            the files.
        seed: random seed for shuffling and augmentation.
        shuffle_buffer_size: number of encoded records in the shuffle buffer of a
            stream; lists and folders are shuffled as a whole.
        sampling: how often each example occurs in an epoch: "uniform",
            "class_balanced" or "per_identity"; see `plsc_tf.data.sampling`.
        images_per_identity: consecutive images of one class, for "per_identity".
        num_parallel_batches: number of batches assembled in parallel. None, for this
            and the next two options, chooses a value automatically.
        prefetch_buffer_size: number of batches prefetched.
        num_preprocessing_threads: number of images decoded in parallel.
        use_caching: whether to keep the decoded, resized images in memory. Each takes
            3 * height * width bytes, and three times that while the cache is filled.
        cache_dir: if set, keeps these images in a file below this folder instead;
            later runs reuse it.
        skip_bad_records: whether to log an unreadable record and replace it with the
            next good one; if False, such a record raises an error.
        max_megapixels: largest encoded image, in millions of pixels; a larger one is
            an unreadable record.
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
    max_megapixels: float = MAX_MEGAPIXELS

    def __post_init__(self):
        object.__setattr__(self, "image_size", check_image_size(self.image_size))
        # This also checks the options early.
        chosen = self.build_preprocessing().augmentation
        object.__setattr__(self, "augmentation", chosen)
        check_least(self, "shuffle_buffer_size", *_OF_THE_MACHINE[:3])
        require_one_of(SAMPLINGS, sampling=self.sampling)

    def for_batches_of(self, batch_size: int) -> "PipelineOptions":
        """Returns these options with numbers for threads and buffers that are None.

        Args:
            batch_size: global batch size, in images.
        """
        height, width = self.image_size
        ready = _READY_BYTES // (3 * height * width * batch_size)
        cores = len(os.sched_getaffinity(0))
        return dataclasses.replace(
            self,
            num_parallel_batches=self.num_parallel_batches or 2,
            prefetch_buffer_size=self.prefetch_buffer_size or min(max(2, ready), 32),
            num_preprocessing_threads=self.num_preprocessing_threads or cores,
        )

    def build_preprocessing(self) -> "preprocessing.Preprocessing":
        """Returns the preprocessing that these options describe."""
        return preprocessing.build(
            self.preprocessing, self.image_size, self.augmentation
        )


class Batches:
    """Batches of a source, epoch by epoch.

    Iterating over the object yields epoch 0; if TensorFlow fails to read an image, the
    error raised names that image.

    Args:
        source: provides the examples.
        batch_size: global batch size, in images.
        options: options of the pipeline.

    Attributes:
        num_classes: number of classes; None if unknown.
        image_size: (height, width) of the images in a batch.
    """

    def __init__(
        self, source: Source, batch_size: int, *, options: PipelineOptions | None = None
    ):
        require(batch_size >= 1, "batch_size must be positive", batch_size=batch_size)
        self.options = (options or PipelineOptions()).for_batches_of(batch_size)
        self._preprocessing = self.options.build_preprocessing()
        if self.options.skip_bad_records:
            size = self._cached_size
            source = faults.without_bad_records(source, self._decoded, size)
        self.source, self.num_classes = source, source.num_classes
        self.batch_size, self.image_size = batch_size, self.options.image_size
        self._cached: Source | None = None

    @property
    def num_examples(self) -> int | None:
        """Number of examples in an epoch; None if unknown."""
        return (self._cached or self.source).num_examples

    @property
    def steps_per_epoch(self) -> int | None:
        """Number of batches in an epoch, counting a partial one; None if unknown."""
        if self.num_examples is None:
            return None
        return -(-self.num_examples // self.batch_size)

    def __len__(self) -> int:
        if self.steps_per_epoch is None:
            raise TypeError(
                "The number of batches is unknown. Pass num_examples to the function "
                f"that created the source {self.source.name!r}, such as from_generator."
            )
        return self.steps_per_epoch

    def __iter__(self):
        done = 0
        try:
            for done, batch in enumerate(self.epoch(0), 1):  # noqa: B007 - is read
                yield batch
        except faults.READ_ERRORS as error:
            raise (self.explain(0, done) or error) from error

    def in_order(self) -> "Batches":
        """Returns batches of the same images in file order, without augmentation."""
        if not (self.options.training or self.options.shuffle):
            return self
        options = dataclasses.replace(
            self.options,
            training=False,
            shuffle=False,
            sampling="uniform",
            use_caching=False,
            cache_dir="",
            skip_bad_records=False,  # `self.source` already skips them
        )
        return Batches(self.source, self.batch_size, options=options)

    def epoch(
        self, epoch: int, start_step: int = 0, part: Part | None = None
    ) -> tf.data.Dataset:
        """Returns the batches of an epoch, starting at a given step.

        Args:
            epoch: number of the epoch, from 0.
            start_step: number of batches to skip.
            part: the part of each batch to read, for a worker; None reads whole ones.

        Returns:
            tf.data.Dataset of (uint8 `[batch, h, w, 3]`, int64 `[batch]`); the last
            batch may be smaller. With a part, each batch has `part.size` examples, and
            a third column: weights, float32 `[part.size]`.
        """
        options, order = self.options, self._order(epoch, start_step, part)
        count, columns = (self.batch_size, 2) if part is None else (part.size, 3)
        if (options.use_caching or options.cache_dir) and self._cached is None:
            self._cached = self._fill_cache()
        size = block_size(count, self.image_size)
        seed = sources.on_host(np.int64(sources.mix_seeds(options.seed, epoch, 1)))
        source, make = self._cached or self.source, self._make_block
        at_once = options.num_parallel_batches * -(-count // size)
        calls = min(options.num_preprocessing_threads, at_once)
        step = sources.without_autograph(lambda entries: make(entries, seed)[:columns])
        batches = source.blocks(size, order).map(step, num_parallel_calls=calls)
        batches = batches.rebatch(count, drop_remainder=part is not None)
        batches = batches.prefetch(options.prefetch_buffer_size)
        return batches.with_options(sources.dataset_options())

    def explain(
        self,
        epoch: int,
        start_step: int = 0,
        *,
        max_steps: int = 64,
        part: Part | None = None,
    ) -> ValueError | None:
        """Searches for the example that made TensorFlow fail; see `faults.first_fault`.

        Args:
            epoch: the epoch that failed.
            start_step: the step that failed, or an earlier one.
            max_steps: number of batches to search.
            part: the part of each batch to search; None searches whole batches.

        Returns:
            An error that names the example and the remedy, or None if every example
            can be read.
        """
        count = max_steps * (self.batch_size if part is None else part.size)
        order, classes = self._order(epoch, start_step, part), self.num_classes
        return faults.first_fault(self.source, order, self._decoded, classes, count)

    def fingerprint(self) -> str:
        """Returns a string that identifies the examples and their order.

        The data set's location and modification times are not part of it, so copies
        on several machines have the same fingerprint. Reads no examples.
        """
        known = {**dataclasses.asdict(self.options), "batch_size": self.batch_size}
        for name in _OF_THE_MACHINE:
            del known[name]
        options = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
        return (
            f"examples: {self.source.num_examples or 'unknown'}, "
            f"classes: {self.num_classes or 'unknown'}, "
            f"contents: {self.source.contents()[:16]}, options: {options[:16]}"
        )

    def _order(self, epoch: int, start_step: int, part: Part | None = None) -> Order:
        names = "seed shuffle shuffle_buffer_size sampling images_per_identity".split()
        known = {name: getattr(self.options, name) for name in names}
        size, start = self.batch_size, start_step * self.batch_size
        return Order(**known, epoch=epoch, start=start, batch_size=size, part=part)

    @property
    def _cached_size(self) -> tuple[int, int]:
        steps = self._preprocessing
        return steps.cached_size if self.options.training else steps.image_size

    def _decoded(self, images) -> tf.Tensor:
        """Checks and decodes a block to `_cached_size`: uint8 `[block, h, w, 3]`."""
        images = checked(images, self.options.max_megapixels)
        return sources.map_rows(self._decode, images)

    def _decode(self, image):
        steps = self._preprocessing
        decode = steps.decode_for_cache if self.options.training else steps.evaluate
        return decode(sources.dense(image))

    @functools.cached_property
    def _make_block(self):
        """Function that maps entries and the epoch's seed to (images, labels, weights).

        It is traced only once, because tracing takes longer than making a few batches.
        """
        training, steps = self.options.training, self._preprocessing
        source = self._cached or self.source
        # Caches and sources that skip bad records return images that `_decoded` has
        # already framed.
        framed = source is not self.source or self.options.skip_bad_records

        def block(entries, seed):
            item = source.read(entries)
            decisions = {}
            if training:
                decisions = steps.decide(chances(seed, entries["position"]))
            images, sizes = item["image"], None
            if images.dtype == tf.string:
                sizes = jpeg_sizes(images)
            images = checked(images, self.options.max_megapixels, sizes)
            images = make_images(
                images, decisions, steps, training=training, framed=framed, sizes=sizes
            )
            labels = faults.checked_labels(item["label"], self.num_classes)
            return images, labels, entries["weight"]

        return tf.function(block, autograph=False)

    def _fill_cache(self) -> Source:
        """Decodes and resizes every image once, in file order."""
        options, size = self.options, self._cached_size

        def decoded(entries):
            item = self.source.read(entries)
            labels = faults.checked_labels(item["label"], self.num_classes)
            return self._decoded(item["image"]), labels

        blocks = self.source.blocks(64, FILE_ORDER).map(
            sources.without_autograph(decoded),
            num_parallel_calls=options.num_preprocessing_threads,
        )
        blocks = blocks.prefetch(1).with_options(sources.dataset_options())
        try:
            if not options.cache_dir:
                return cache.in_memory(self.source, blocks)
            purpose = "training" if options.training else "evaluation"
            steps = f"{options.preprocessing}, for {purpose}, {size}"
            if options.skip_bad_records:  # others take the place of those too large
                steps += f", at most {options.max_megapixels} megapixels"
            return cache.on_disk(self.source, blocks, options.cache_dir, steps)
        except faults.READ_ERRORS as error:
            where = self.source, FILE_ORDER, self._decoded, self.num_classes, 2**40
            raise (faults.first_fault(*where) or error) from error
