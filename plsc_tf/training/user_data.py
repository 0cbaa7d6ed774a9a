"""Wraps user data for `fit` and `evaluate` in the interface of plsc_tf's own data.

The interface consists of `batch_size`, `steps_per_epoch` and
`epoch(number, start_step)`, which returns a `tf.data.Dataset` of global batches
(images, labels[, weights]).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from plsc_tf.data.images import check_range
from plsc_tf.heads.margins import require
from plsc_tf.training import batching

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier


class DatasetBatches:
    """A user's `tf.data.Dataset` of global batches.

    Args:
        dataset: yields (images, labels) or (images, labels, weights).

    Raises:
        ValueError: the data set yields other elements, or none.
    """

    # With steps_per_epoch, an epoch continues where the previous one ended, as in
    # Keras.
    one_pass = True

    def __init__(self, dataset: tf.data.Dataset) -> None:
        spec = dataset.element_spec
        fits = isinstance(spec, tuple) and len(spec) in (2, 3)
        rule = "A data set must yield (images, labels) or (images, labels, weights)"
        require(fits, rule, elements=spec)
        if spec[0].shape.rank != 4:
            raise ValueError(
                "Images must come in batches [batch, height, width, 3]; did you "
                f"forget .batch()? Received: elements {spec}"
            )
        self._dataset = dataset
        self.batch_size = spec[0].shape[0]
        if self.batch_size is None:
            first = next(iter(dataset), None)
            if first is None:
                raise ValueError("The data set is empty: it yields no batch.")
            self.batch_size = int(first[0].shape[0])
        size = int(dataset.cardinality())
        self.steps_per_epoch = size if size > 0 else None

    def cardinality(self) -> tf.Tensor:
        """Returns the data set's number of batches, as `tf.data.Dataset` does."""
        return self._dataset.cardinality()

    def epoch(self, epoch: int, start_step: int = 0) -> tf.data.Dataset:
        """Returns the data set from batch `start_step` on, the same in every epoch."""
        del epoch  # a `tf.data.Dataset` does not depend on the epoch
        return self._dataset.skip(start_step) if start_step else self._dataset


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

    def __init__(
        self,
        arrays: tuple,
        batch_size: int,
        shuffle: bool,
        begun: tuple[int, int] = (0, 0),
    ) -> None:
        with tf.device("CPU"):
            self._arrays = tuple(tf.convert_to_tensor(array) for array in arrays)
        self.batch_size = batch_size
        self.steps_per_epoch = -(-len(arrays[1]) // batch_size)
        steps, epoch = begun
        self._shuffle = shuffle
        self._seed = max(steps - epoch * self.steps_per_epoch, 0)

    def epoch(self, epoch: int, start_step: int = 0) -> tf.data.Dataset:
        """Returns the batches of an epoch from `start_step` on."""
        order = np.arange(len(self._arrays[1]))
        if self._shuffle:
            order = np.random.default_rng([self._seed, epoch]).permutation(order)
        rows = tf.data.Dataset.from_tensor_slices(order[start_step * self.batch_size :])

        def gather(chosen):
            return tuple(tf.gather(array, chosen) for array in self._arrays)

        gather = tf.autograph.experimental.do_not_convert(gather)
        return rows.batch(self.batch_size).map(gather)


class WeighedBatches:
    """Batches whose examples are weighted by class.

    Args:
        data: data with the interface that `training.feed` needs.
        class_weight: `{label: weight}`; other classes have weight 1.

    Raises:
        ValueError: `class_weight` has another form, or an invalid weight.
    """

    def __init__(self, data: Any, class_weight: Mapping[int, float]) -> None:
        self._data = data
        _check_class_weight(class_weight)
        pairs = tf.lookup.KeyValueTensorInitializer(
            np.fromiter(class_weight, np.int64),
            np.fromiter(class_weight.values(), np.float32),
        )
        self._table = tf.lookup.StaticHashTable(pairs, default_value=1.0)

    def __getattr__(self, name):
        value = getattr(self._data, name)
        if name != "part_of_epoch":
            return value
        return lambda *where, **part: self._weighed(value(*where, **part), padded=True)

    def epoch(self, epoch: int, start_step: int = 0) -> tf.data.Dataset:
        """Returns the weighted batches of an epoch from `start_step` on."""
        return self._weighed(self._data.epoch(epoch, start_step))

    def _weighed(self, dataset, padded=False):
        def weigh(images, labels, weights=None):
            class_weights = self._table.lookup(tf.cast(labels, tf.int64))
            class_weights = tf.reshape(class_weights, [-1])
            if weights is not None:
                class_weights *= tf.cast(tf.reshape(weights, [-1]), tf.float32)
            # In padded batches, the original weights mark the real examples.
            weighed = images, labels, class_weights
            return (*weighed, weights) if padded else weighed

        return dataset.map(tf.autograph.experimental.do_not_convert(weigh))


def _check_class_weight(class_weight):
    weights = list(class_weight.values()) if isinstance(class_weight, dict) else []
    fits = bool(weights) and not batching.bad_weights(weights).size
    rule = "class_weight must be {label: weight}, no weight negative"
    require(fits, rule, class_weight=class_weight)


def training_data(
    x: Any,
    y: Any = None,
    *,
    batch_size: int | None = None,
    sample_weight: Any = None,
    class_weight: Mapping[int, float] | None = None,
    shuffle: bool = True,
    begun: tuple[int, int] = (0, 0),
) -> Any:
    """Converts user data for `fit` to the interface that `training.feed` needs.

    Args:
        x: data returned by `plsc_tf.load`, a `tf.data.Dataset`, or an array.
        y: labels if `x` is an array.
        batch_size: images per global batch if `x` is an array.
        sample_weight: weights `[N]` if `x` is an array.
        class_weight: `{label: weight}`.
        shuffle: whether to shuffle an array.
        begun: determines an array's order, see `ArrayBatches`.

    Raises:
        ValueError: the arguments do not fit together.
    """
    if is_ours(x) or isinstance(x, tf.data.Dataset):
        if y is not None or sample_weight is not None:
            raise ValueError(
                "y and sample_weight must be left out with a data set: it yields "
                "(images, labels) or (images, labels, weights)."
            )
        data = x if is_ours(x) else DatasetBatches(x)
    else:
        if y is None:
            raise ValueError(
                "x must be what plsc_tf.load returns, a tf.data.Dataset of (images, "
                "labels), or an array of images with y=labels. A generator becomes a "
                f"tf.data.Dataset by from_generator. Received: {type(x)}"
            )
        arrays = _arrays(x, y, sample_weight, "x")
        size = 32 if batch_size is None else batch_size
        require(size >= 1, "batch_size must be at least 1", batch_size=batch_size)
        data = ArrayBatches(arrays, size, shuffle, begun)
    return data if class_weight is None else WeighedBatches(data, class_weight)


def is_ours(x: Any) -> bool:
    """Returns whether x has the interface of plsc_tf's own data."""
    return hasattr(x, "epoch") and hasattr(x, "batch_size")


def evaluation_data(
    x: Any, y: Any = None, *, batch_size: int | None = None, sample_weight: Any = None
) -> Any:
    """Converts user data for `evaluate`, in file order and without augmentation.

    Args:
        x, y, batch_size, sample_weight: see `training_data`.
    """
    return training_data(
        in_order(x),
        y,
        batch_size=batch_size,
        sample_weight=sample_weight,
        shuffle=False,
    )


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
    batches = evaluation_data(
        data, labels, batch_size=batch_size, sample_weight=weights
    )
    check_endless(batches, steps, "validation_steps")
    return batches


def check_endless(data: Any, steps: int | None, argument: str) -> None:
    """Raises ValueError if all batches of an infinite data set are requested.

    Args:
        data: result of `training_data`, or a `tf.data.Dataset`.
        steps: number of batches to read, or None for all.
        argument: name of the argument that sets `steps`, for the message.
    """
    if steps is not None or not hasattr(data, "cardinality"):
        return
    if data.cardinality() == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            f"The data set repeats without end: say {argument}, or leave out .repeat()."
        )


def _arrays(images, labels, weights, name):
    """Checks images `[N, h, w, 3]`, labels `[N]` and weights `[N]`; returns arrays."""
    images, labels = np.asarray(images), batching.whole_labels(labels)
    batching.check_rank(images.shape, name)
    check_range(images, name)
    arrays = {"images": images, "labels": labels}
    if weights is not None:
        arrays["weights"] = np.asarray(weights, np.float32).reshape(-1)
    counts = {name: len(array) for name, array in arrays.items()}
    rule = "images, labels and weights must have the same length, at least 1"
    require(len(labels) > 0 and len(set(counts.values())) == 1, rule, **counts)
    bad = batching.bad_weights(arrays.get("weights", []))
    if bad.size:
        received = {f"weights[{bad[0]}]": arrays["weights"][bad[0]]}
        require(False, "Weights must be numbers, none negative", **received)
    return tuple(arrays.values())


def one_batch(
    model: Classifier,
    images: Any,
    labels: Any,
    sample_weight: Any,
    class_weight: Mapping[int, float] | None,
) -> Any:
    """Converts arrays that form a global batch to the per-replica batch of a step.

    Args:
        model: the `Classifier`.
        images, labels, sample_weight, class_weight: see `Classifier.train_on_batch`.

    Raises:
        ValueError: the arrays do not fit together, or do not fit the model.
    """
    arrays = _arrays(images, labels, sample_weight, "images")
    labels, classes = arrays[1], model.head.num_classes
    outside = labels[(labels < 0) | (labels >= classes)]
    rule = f"Labels must lie in [0, num_classes={classes})"
    require(not outside.size, rule, labels=outside[:9])
    batching.check_shape(arrays[0].shape, model.backbone.input_shape)
    tensors = [tf.convert_to_tensor(array) for array in arrays]
    weights = tensors[2] if len(tensors) > 2 else None
    if class_weight is not None:
        _check_class_weight(class_weight)
        of_classes = tf.constant([class_weight.get(i, 1.0) for i in labels.tolist()])
        weights = of_classes if weights is None else of_classes * weights
    size = batching.padded_size(len(labels), model.trainer.batch_parts)
    batch = batching.pad(tensors[0], tensors[1], weights, size)
    return batching.split(model.strategy, batch)
