"""Wraps user data for `fit` and `evaluate` in the interface of plsc_tf's own data.

The interface consists of `batch_size`, `steps_per_epoch` and
`epoch(number, start_step)`, which returns an iterable of global batches
(images, labels[, weights]).
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from plsc_tf.data.images import check_range
from plsc_tf.requirements import require
from plsc_tf.training import batching
from plsc_tf.training.circular import Classifier


class DatasetBatches:
    """A user's `tf.data.Dataset` of global batches.

    Args:
        dataset: yields (images, labels) or (images, labels, weights).

    Raises:
        ValueError: the data set yields other elements, or none.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        spec = dataset.element_spec
        fits = isinstance(spec, tuple) and len(spec) in (2, 3)
        rule = "The data set must yield (images, labels) or (images, labels, weights)"
        require(fits, rule, elements=spec)
        rule = "The data set must yield images in batches [batch, height, width, 3]"
        require(spec[0].shape.rank == 4, rule, "Call .batch()", elements=spec)
        options = tf.data.Options()
        # With autotuning, the end of every epoch waits for a planning thread, up to two
        # minutes on two cores. `data.pipeline` disables it as well.
        options.autotune.enabled = False
        self._dataset = dataset.with_options(options)
        self.batch_size = spec[0].shape[0]
        if self.batch_size is None:
            if (first := next(iter(dataset), None)) is None:
                raise ValueError("The data set is empty: it yields no batch.")
            self.batch_size = int(first[0].shape[0])
        size = int(dataset.cardinality())
        self.steps_per_epoch = size if size > 0 else None

    def cardinality(self) -> tf.Tensor:
        """Returns the data set's number of batches, as `tf.data.Dataset` does."""
        return self._dataset.cardinality()

    def epoch(self, epoch: int, start_step: int = 0) -> tf.data.Dataset:
        """Returns the data set from batch `start_step` on, the same in every epoch."""
        return self._dataset.skip(start_step)

    def endless(self, done: int) -> tf.data.Dataset:
        """Returns the data set again and again, without the first `done` batches.

        With steps_per_epoch, an epoch continues where the previous one ended, as in
        Keras. A resumed run skips the batches it has already trained on, which is
        correct if the data set always yields the same batches.
        """
        done = done % self.steps_per_epoch if self.steps_per_epoch else done
        return self._dataset.repeat().skip(done)


@dataclasses.dataclass
class ArrayBatches:
    """Batches of arrays, in an order that depends on the number of the epoch.

    Args:
        arrays: images `[N, h, w, 3]`, labels `[N]` and optionally weights `[N]`.
        batch_size: images per global batch.
        shuffle: whether to shuffle the examples.
        begun: (global step at which the first epoch begins, its number). They determine
            the random seed: a second `fit` uses other orders than the first, and a
            resumed run continues with the same orders.
    """

    arrays: tuple
    batch_size: int
    shuffle: bool
    begun: tuple[int, int] = (0, 0)

    @property
    def steps_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return -(-len(self.arrays[1]) // self.batch_size)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[tuple]:
        """Yields the batches of an epoch from `start_step` on."""
        order = np.arange(len(self.arrays[1]))
        if self.shuffle:
            steps, first = self.begun
            seed = max(steps - first * self.steps_per_epoch, 0)
            order = np.random.default_rng([seed, epoch]).permutation(order)
        for step in range(start_step, self.steps_per_epoch):
            rows = order[step * self.batch_size : (step + 1) * self.batch_size]
            yield tuple(array[rows] for array in self.arrays)


def training_data(
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    sample_weight: Any = None,
    shuffle: bool = True,
    begun: tuple[int, int] = (0, 0),
) -> Any:
    """Converts user data for `fit` to the interface that `training.feed` needs.

    Args:
        x: data returned by `plsc_tf.load`, a `tf.data.Dataset`, or an array.
        y: labels if `x` is an array.
        batch_size: images per global batch if `x` is an array.
        sample_weight: weights `[N]` if `x` is an array.
        shuffle: whether to shuffle an array.
        begun: determines an array's order, see `ArrayBatches`.

    Raises:
        ValueError: the arguments do not fit together.
    """
    if is_ours(x) or isinstance(x, tf.data.Dataset):
        alone = y is None and sample_weight is None
        advice = "x must yield (images, labels) or (images, labels, weights)"
        require(alone, "If x is a data set, leave out y and sample_weight", advice)
        return x if is_ours(x) else DatasetBatches(x)
    rule = "x must be from plsc_tf.load, a tf.data.Dataset, or images with y=labels"
    advice = "Convert a generator with tf.data.Dataset.from_generator"
    require(y is not None, rule, advice, x=type(x))
    size = 32 if batch_size is None else batch_size
    require(size >= 1, "batch_size must be at least 1", batch_size=batch_size)
    return ArrayBatches(_arrays("x", x, y, sample_weight), size, shuffle, begun)


def is_ours(x: Any) -> bool:
    """Returns whether x has the interface of plsc_tf's own data."""
    return hasattr(x, "epoch") and hasattr(x, "batch_size")


def evaluation_data(x: Any, *labels: Any, **options: Any) -> Any:
    """Converts user data for `evaluate`, in file order and without augmentation.

    Args:
        x, *labels, **options: see `training_data`.
    """
    return training_data(in_order(x), *labels, shuffle=False, **options)


def in_order(x: Any) -> Any:
    """Returns plsc_tf's data in file order without augmentation; others unchanged."""
    return x.in_order() if hasattr(x, "in_order") else x


def validation_batches(data: Any, batch_size: int | None, steps: int | None) -> Any:
    """Converts `validation_data` of `fit` to data for `Classifier.evaluate`.

    Args:
        data: (images, labels[, weights]), or any data that `evaluate` accepts as `x`.
        batch_size: images per global batch if the data are arrays.
        steps: number of batches to evaluate, or None for all.
    """
    labels = weights = None
    if isinstance(data, tuple | list):
        rule = "validation_data must be (images, labels[, weights]) or a data set"
        require(len(data) in (2, 3), rule, length=len(data))
        data, labels, weights = (*data, None)[:3]
    data = evaluation_data(data, labels, batch_size=batch_size, sample_weight=weights)
    check_endless(data, steps, "validation_steps")
    return data


def check_endless(data: Any, steps: int | None, argument: str) -> None:
    """Raises ValueError if all batches of an infinite data set are requested.

    Args:
        data: result of `training_data`, or a `tf.data.Dataset`.
        steps: number of batches to read, or None for all.
        argument: name of the argument that sets `steps`, for the message.
    """
    if steps is not None or not hasattr(data, "cardinality"):
        return
    rule = f"The data set is infinite. Set {argument}, or leave out .repeat()"
    require(data.cardinality() != tf.data.INFINITE_CARDINALITY, rule)


def _arrays(name, images, labels, weights):
    """Checks images `[N, h, w, 3]`, labels `[N]` and weights `[N]`; returns arrays."""
    images = np.asarray(images)
    check_range(images, name)
    return batching.checked(images, labels, weights)


def one_batch(model: Classifier, class_weight: Any, *arrays: Any) -> Any:
    """Converts arrays that form a global batch to the per-replica batch of a step.

    Args:
        model: the `Classifier`.
        class_weight: `{label: weight}`, or None.
        *arrays: images, labels, and weights or None; see `Classifier.train_on_batch`.

    Raises:
        ValueError: the arrays do not fit together, or do not fit the model.
    """
    batching.check_images(np.shape(arrays[0]), model.backbone.input_shape)
    images, labels, *weights = _arrays("images", *arrays)
    batching.check_classes(labels, model.head.num_classes)
    batching.check_class_weight(class_weight)
    size = batching.padded_size(len(labels), model.trainer.batch_parts)
    batch = batching.pad(images, labels, weights[0] if weights else None, size)
    return batching.split(model.strategy, batching.weighted(batch, class_weight))
