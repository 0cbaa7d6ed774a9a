"""Sources that can only be read from the front."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from plsc_tf.data.source import Order, Source, mix_seeds, on_host, without_autograph

# Files of a stream that are read at the same time, so that a shuffle buffer of
# 1,024 records sees more than one of them.
_FILES_AT_ONCE = 8


class StreamSource(Source):
    """A source that can only be read from the front: record files, generators.

    Args:
        name: for messages.
        part_sizes: number of examples of each part (file), in order. A single part
            may be of unknown size: (None,).
        open_part: maps an int64 scalar tensor, the part, to a tf.data.Dataset.
        parse: maps an element of such a data set to (image, label).
        num_classes: number of classes, or None if unknown.
        describe: names an example for an error message.
    """

    def __init__(
        self,
        name: str,
        part_sizes: Sequence[int | None],
        open_part: Callable[[tf.Tensor], tf.data.Dataset],
        parse: Callable,
        *,
        num_classes: int | None = None,
        describe: Callable[[int], str] | None = None,
    ):
        self.name = name
        self.num_classes = num_classes
        known = all(size is not None for size in part_sizes)
        self.num_examples = sum(part_sizes) if known else None
        self._part_sizes = tuple(part_sizes)
        self._open_part = open_part
        self._parse = parse
        self._describe = describe

    def blocks(self, size: int, order: Order) -> tf.data.Dataset:
        """See `Source.blocks`; a start in the middle reads what lies before it.

        A part, too, reads all examples, but keeps only its own.

        Raises:
            ValueError: the sampling needs to find examples by their labels.
        """
        if order.sampling != "uniform":
            raise ValueError(
                f"sampling={order.sampling} needs examples that can be found by their "
                f"labels; {self.name} can only be read from the front. Make TFRecords "
                "of it: python -m plsc_tf.convert."
            )
        parts = np.arange(len(self._part_sizes), dtype=np.int64)
        at_once = 1
        if order.shuffle:
            parts = np.random.default_rng([order.seed, order.epoch]).permutation(parts)
            at_once = min(len(parts), _FILES_AT_ONCE)
        firsts = np.cumsum([0] + [size or 0 for size in self._part_sizes[:-1]])
        firsts = on_host(firsts.astype(np.int64))

        def open_numbered(part):
            numbers = tf.data.Dataset.counter(tf.gather(firsts, part), 1)
            return tf.data.Dataset.zip((numbers, self._open_part(part)))

        entries = tf.data.Dataset.from_tensor_slices(on_host(parts)).interleave(
            without_autograph(open_numbered),
            cycle_length=at_once,
            block_length=1,
            num_parallel_calls=at_once,
            deterministic=True,
        )
        if order.shuffle and order.shuffle_buffer_size > 1:
            seed = mix_seeds(order.seed, order.epoch)
            entries = shuffled(entries, order.shuffle_buffer_size, seed)
        entries = entries.skip(order.start) if order.start else entries
        if order.part is not None:
            entries = order.part.of_stream(
                entries.enumerate(order.start), order.batch_size
            )
            return self._parsed(entries, self._own).ragged_batch(size)
        blocks = self._parsed(entries, self._example).ragged_batch(size)

        def placed(number, block):
            numbers = number * size + tf.range(tf.size(block["index"], tf.int64))
            weight = tf.ones_like(numbers, tf.float32)
            return {**block, "position": order.start + numbers, "weight": weight}

        return blocks.enumerate().map(without_autograph(placed))

    def _parsed(self, entries, function):
        return entries.map(without_autograph(function), num_parallel_calls=4)

    def _example(self, index, raw):
        image, label = self._parse(raw)
        return {"image": image, "label": tf.cast(label, tf.int64), "index": index}

    def _own(self, entry, weight):
        position, numbered = entry
        return {**self._example(*numbered), "position": position, "weight": weight}

    def read(self, entries: dict) -> dict:
        """See `Source.read`."""
        return {key: entries[key] for key in ("image", "label", "index")}

    def describe(self, index: int) -> str:
        """See `Source.describe`."""
        if self._describe is None:
            return super().describe(index)
        return self._describe(index)

    def fingerprint(self) -> str:
        """See `Source.fingerprint`.

        Raises:
            ValueError: always: what a function yields leaves no trace in files.
        """
        raise ValueError(
            f"{self.name} can only be read from the front, and nothing tells whether "
            "it has changed: its pictures cannot be kept on disk. Use use_caching "
            "instead of cache_dir, or make TFRecords of it: python -m plsc_tf.convert."
        )

    def with_fetch(self, fetch: Callable, labels: tf.Tensor) -> Source:
        """See `Source.with_fetch`; the order is that of the parts on disk."""
        sizes = self._part_sizes if self.num_examples else (len(labels),)
        firsts = on_host(np.cumsum((0, *sizes)).astype(np.int64))
        return StreamSource(
            self.name,
            sizes,
            lambda part: tf.data.Dataset.range(
                tf.gather(firsts, part), tf.gather(firsts, part + 1)
            ),
            lambda index: (fetch(index[tf.newaxis])[0], tf.gather(labels, index)),
            num_classes=self.num_classes,
            describe=self._describe,
        )


def shuffled(dataset: tf.data.Dataset, buffer_size: int, seed: int) -> tf.data.Dataset:
    """Shuffles through a buffer in an order that follows from `seed` alone.

    `Dataset.shuffle` mixes in the seed of `tf.random.set_seed`, so that a resumed
    process which sets another one would see other examples; the op itself does not.
    """
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=buffer_size,
        seed=seed,
        seed2=1,
        reshuffle_each_iteration=False,
        output_types=[spec.dtype for spec in tf.nest.flatten(dataset.element_spec)],
        output_shapes=[spec.shape for spec in tf.nest.flatten(dataset.element_spec)],
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)
