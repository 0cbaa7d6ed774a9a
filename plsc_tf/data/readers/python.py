"""Sources made from Python objects: generators, tf.data.Datasets, PLSC's readers."""

import dataclasses
import functools
import reprlib
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from plsc_tf.data.images import check_range
from plsc_tf.data.pairs import Pairs
from plsc_tf.data.sampling import Order
from plsc_tf.data.source import Source, mix_seeds, without_autograph
from plsc_tf.requirements import require

# Number of images whose range is checked; a single one may pass by chance.
_CHECKED = 16


@dataclasses.dataclass(eq=False, repr=False)
class StreamSource(Source):
    """A source that can only be read sequentially, from the start of an epoch.

    Args:
        name: name for messages.
        examples: dataset that yields (image, label).
        num_classes: number of classes, or None if unknown.
        num_examples: number of examples in an epoch, or None if unknown.
    """

    name: str
    examples: tf.data.Dataset
    _: dataclasses.KW_ONLY
    num_classes: int | None = None
    num_examples: int | None = None

    def blocks(self, size: int, order: Order) -> tf.data.Dataset:
        """See `Source.blocks`; also reads skipped examples and those of other parts.

        Raises:
            ValueError: the sampling is not "uniform", so it needs random access.
        """
        if order.sampling != "uniform":
            raise self._refused(f"sampling={order.sampling}")
        entries = self.examples.enumerate()
        if order.shuffle and order.shuffle_buffer_size > 1:
            seed = mix_seeds(order.seed, order.epoch)
            entries = _shuffled(entries, order.shuffle_buffer_size, seed)
        entries = entries.skip(order.start).enumerate(order.start)
        if order.part is not None:
            entries = order.part.of_stream(entries, order.batch_size)

        def named(*entry):
            # Entries have a weight only if there is a part.
            entry, weight = (entry, 1.0) if order.part is None else entry
            position, (index, (image, label)) = entry
            item = {"image": image, "label": tf.cast(label, tf.int64), "index": index}
            return {**item, "position": position, "weight": weight}

        entries = entries.map(without_autograph(named), num_parallel_calls=4)
        return entries.ragged_batch(size)

    def read(self, entries: dict) -> dict:
        """See `Source.read`."""
        return {key: entries[key] for key in ("image", "label", "index")}

    def fingerprint(self) -> str:
        """See `Source.fingerprint`.

        Raises:
            ValueError: always, because there is no way to tell whether a function
                yields the same data as before.
        """
        raise self._refused("cache_dir", "Set use_caching, or convert it")

    def _refused(self, option, advice="Convert it"):
        return ValueError(
            f"{option} needs random access, but {self.name} is a stream. {advice} "
            "to TFRecords: python -m plsc_tf.convert."
        )


def _shuffled(dataset: tf.data.Dataset, buffer_size: int, seed: int) -> tf.data.Dataset:
    """Shuffles with a buffer in an order that depends only on `seed`.

    `Dataset.shuffle` also uses the seed of `tf.random.set_seed`, so a resumed process
    that sets a different one would see different examples. The op itself does not.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=buffer_size,
        seed=seed,
        seed2=1,
        reshuffle_each_iteration=False,
        output_types=[spec.dtype for spec in specs],
        output_shapes=[spec.shape for spec in specs],
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def from_generator(
    function: Callable, *, name: str = "generator", **counts: int | None
) -> StreamSource:
    """Creates a source from a Python generator function that yields (image, label).

    Images may be encoded bytes or arrays in 0...255 of shape `[h, w]`, `[h, w, 3]` or,
    as from PLSC's readers, `[3, h, w]`. The function is called once per epoch. If the
    first images are float arrays, they must not look normalized.

    Args:
        function: function without arguments that returns an iterator of (image, label).
        name: name for messages.
        **counts: num_classes and num_examples of `StreamSource`.

    Raises:
        ValueError: `function` is not callable, or yields nothing or invalid examples.
    """
    rule = f"{name} must be a function that returns an iterator of (image, label)"
    kind = type(function).__name__
    require(callable(function), rule, "Each epoch calls it again", type=kind)

    def converted():
        for number, item in enumerate(function()):
            yield _convert(item, name, number)

    first = next(converted(), None)  # Fail now, not in the first epoch.
    require(first is not None, f"{name} yields no examples")
    spec = tf.TensorSpec([], tf.string)
    if not isinstance(first[0], bytes):
        spec = tf.TensorSpec([None, None, first[0].shape[-1]], tf.uint8)
    signature = spec, tf.TensorSpec([], tf.int64)
    examples = tf.data.Dataset.from_generator(converted, output_signature=signature)
    return StreamSource(name, examples, **counts)


def from_dataset(
    dataset: tf.data.Dataset, *, name: str = "tf.data.Dataset", **counts: int | None
) -> StreamSource:
    """Creates a source from a tf.data.Dataset of single (image, label) elements.

    Args:
        dataset: dataset of (image, label), neither batched nor repeated. Images are
            encoded bytes, or uint8 or float arrays `[h, w, 3]` in 0...255; labels are
            integers.
        name: name for messages.
        **counts: num_classes and num_examples of `StreamSource`; num_examples is by
            default the dataset's cardinality.

    Raises:
        ValueError: the dataset has other elements, repeats, or yields normalized
            images.
    """
    spec = dataset.element_spec
    fits = isinstance(spec, tuple) and len(spec) == 2
    fits = fits and spec[1].dtype.is_integer and not spec[1].shape.rank
    fits = fits and spec[0].shape.rank in (None, 0, 2, 3)
    rule = f"{name} must yield single (image, label) pairs, not batches nor one-hot"
    require(fits, rule, "If it yields batches, call .unbatch()", element_spec=spec)
    cardinality = int(dataset.cardinality())
    rule = f"{name} repeats without end, but an epoch must end. Remove .repeat()"
    require(cardinality != tf.data.INFINITE_CARDINALITY, rule)
    if spec[0].dtype.is_floating:
        for pixels, _ in dataset.take(_CHECKED):
            check_range(pixels.numpy(), name)
    if cardinality >= 0 and not counts.get("num_examples"):
        counts["num_examples"] = cardinality
    return StreamSource(name, dataset, **counts)


def samples(reader: Callable) -> Iterator:
    """Yields the samples of a reader one by one, even if it yields batches.

    Args:
        reader: function without arguments that returns an iterator of samples, or of
            lists of samples (as `paddle.batch` does).
    """
    for item in reader():
        batch = isinstance(item, list) and all(isinstance(one, tuple) for one in item)
        yield from item if batch else (item,)


def from_reader(reader: Callable | Source, **counts) -> Source:
    """Creates a source from a PLSC reader that yields (image, label).

    Args:
        reader: see `samples`; for the images, see `from_generator`. If the reader has
            a method `source`, such as the readers of `plsc_tf.utils.base64_reader`,
            returns that source, which has random access and a known number of classes.
        **counts: num_classes and num_examples of `from_generator`.

    Raises:
        ValueError: `reader` is not callable, or does not yield (image, label).
    """
    if isinstance(reader, Source):
        return reader
    if hasattr(reader, "source"):
        return reader.source()
    if callable(reader):
        reader = functools.partial(samples, reader)
    return from_generator(reader, name="training data", **counts)


def pairs_from_reader(reader: Callable, name: str = "test_reader") -> Pairs:
    """Creates a verification set from a reader of (left image, right image, same).

    Args:
        reader: see `samples`. Images are encoded bytes or arrays in 0...255; arrays
            must all have the same size.
        name: name of the set.

    Raises:
        ValueError: the reader yields anything else.
    """
    images, same = [], []
    for number, item in enumerate(samples(reader)):
        good = isinstance(item, tuple) and len(item) == 3
        rule = f"{name} must yield (left image, right image, same) at pair {number}"
        require(good, rule, pair=reprlib.repr(item))
        images += [to_picture(image, name, number) for image in item[:2]]
        same.append(bool(item[2]))
    order = np.arange(len(images))
    sizes = {getattr(image, "shape", ("bytes",))[:2] for image in images}
    if sizes - {("bytes",)}:
        rule = f"{name} must yield only encoded images or only arrays of one size"
        require(len(sizes) == 1, rule, sizes=list(sizes)[:3])
        size = sizes.pop()
        images = np.stack([np.broadcast_to(image, (*size, 3)) for image in images])
    return Pairs(name, images, order[0::2], order[1::2], np.array(same, bool))


def _convert(item, name: str, number: int) -> tuple[bytes | np.ndarray, int]:
    """Converts a yielded item to (bytes or uint8 `[h, w, channels]`, label)."""
    try:
        image, label = item
        whole = int(label)
        if whole != label or not -(2**63) <= whole < 2**63:  # int() truncates 1.7.
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{name} must yield (image, label) with a whole number as label. "
            f"Received at example {number}: {reprlib.repr(item)}."
        ) from error
    return to_picture(image, name, number), whole


def to_picture(image, name: str, number: int) -> bytes | np.ndarray:
    """Converts an image from a user's code to bytes or uint8 `[h, w, channels]`.

    Args:
        image: encoded bytes, or an array `[h, w]`, `[h, w, 1 or 3]` or, as from PLSC's
            readers, `[3, h, w]`. Its values are rounded and clipped to 0...255.
        name: name of the data, for messages.
        number: number of the example. The first arrays must not look normalized.

    Raises:
        ValueError: the image is neither, contains NaN or infinity, or is normalized.
    """
    if isinstance(image, bytes | bytearray | np.bytes_):
        return bytes(image)
    try:
        image = np.asarray(image)
    except ValueError:
        # Nested lists of different lengths; the check below rejects this empty array.
        image = np.empty(0, object)
    if image.ndim == 3 and image.shape[0] == 3 and image.shape[-1] not in (1, 3):
        image = image.transpose(1, 2, 0)
    if image.ndim == 2:
        image = image[..., np.newaxis]
    good = image.ndim == 3 and image.shape[-1] in (1, 3) and image.size
    good = good and image.dtype.kind in "buif" and np.isfinite(image).all()
    rule = f"{name} must yield images as bytes or arrays [height, width, 3] of finite "
    rule += f"numbers in 0...255, without NaN, also at example {number}"
    require(good, rule, shape=image.shape, dtype=image.dtype)
    if number < _CHECKED:
        check_range(image, f"Image {number} of {name}")
    if image.dtype != np.uint8:
        image = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    return image
