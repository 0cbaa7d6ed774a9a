"""The training loop: Keras's `fit`, on all devices of a machine."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.data.faults import READ_ERRORS, reason
from plsc_tf.data.part import Part
from plsc_tf.data.pixel_range import check_range
from plsc_tf.training import batching, several_steps
from plsc_tf.training.votes import EndedElsewhereError


@dataclasses.dataclass
class Position:
    """Where a run stands; what a resume needs beside the weights.

    Attributes:
        epoch: number of the running epoch, from 0.
        step: steps of it that are done.
        global_step: steps done since the run began.
    """

    epoch: int = 0
    step: int = 0
    global_step: int = 0


class DatasetBatches:
    """A user's `tf.data.Dataset` of global batches, with the face of our own data.

    Args:
        dataset: yields (images, labels) or (images, labels, weights).
    """

    def __init__(self, dataset):
        spec = dataset.element_spec
        if not isinstance(spec, tuple) or len(spec) not in (2, 3):
            raise ValueError(
                "A data set must yield (images, labels) or (images, labels, "
                f"weights). Received: elements {spec}"
            )
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

    def epoch(self, epoch, start_step=0):
        """The data set from batch `start_step` on, whichever the epoch."""
        del epoch  # the data set knows only itself
        return self._dataset.skip(start_step) if start_step else self._dataset


def as_batches(x, y=None, batch_size=None, sample_weight=None, shuffle=True):
    """Wraps what users hand to `fit` so that it has `epoch(number, start_step)`."""
    if hasattr(x, "epoch") and hasattr(x, "batch_size"):
        return x
    if isinstance(x, tf.data.Dataset):
        return DatasetBatches(x)
    if y is None:
        raise ValueError(
            "x must be what plsc_tf.load returns or a tf.data.Dataset of (images, "
            "labels), or an array of images with y=labels. A generator becomes one by "
            f"tf.data.Dataset.from_generator. Received: {type(x)}"
        )
    images, labels = _arrays(x, y)
    size = 32 if batch_size is None else batch_size
    if size < 1:
        raise ValueError(
            f"batch_size must be at least 1. Received: batch_size={batch_size}"
        )
    arrays = (images, labels)
    if sample_weight is not None:
        weights = np.asarray(sample_weight, np.float32)
        if weights.shape != labels.shape or weights.min() < 0:
            raise ValueError(
                "sample_weight must hold a weight for each image, none negative. "
                f"Received: shape {weights.shape} for {len(labels)} images."
            )
        arrays += (weights,)
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    if shuffle:
        dataset = dataset.shuffle(len(labels), seed=0)
    return DatasetBatches(dataset.batch(size))


def _arrays(x, y):
    """Images and labels [N] of arrays that fit together."""
    images, labels = np.asarray(x), np.asarray(y)
    batching.check_label_shape(labels.shape)
    labels = labels.reshape(-1)
    if images.ndim == 4:
        check_range(images, "x")
    if len(images) != len(labels) or not len(labels):
        raise ValueError(
            "There must be as many images as labels, and the arrays must not be "
            f"empty. Received: {len(images)} images, {len(labels)} labels."
        )
    return images, labels


def fit(  # noqa: PLR0913 - Keras's own arguments of `fit`
    model,
    data,
    *,
    epochs,
    verbose=0,
    callbacks=None,
    initial_epoch=0,
    steps_per_epoch=None,
    initial_step=0,
    stop_at_step=None,
    sentinel=None,
):
    """Runs `model.run_step` over epochs of global batches.

    Args:
        model: the compiled `Classifier`.
        data: has `batch_size`, `steps_per_epoch` and `epoch(number, start_step)`.
        epochs: number of the last epoch + 1.
        verbose: as in Keras.
        callbacks: Keras callbacks.
        initial_epoch: number of the first epoch.
        steps_per_epoch: cuts epochs to so many steps.
        initial_step: steps of the first epoch that are done already.
        stop_at_step: global step to stop at.
        sentinel: a `training.sentinel.Sentinel`, asked when a step is not finite.

    Returns:
        `keras.callbacks.History`; its epochs hold means over the epoch's examples.

    Raises:
        FloatingPointError: a step was not finite, no loss scale explains it, and
            there is no sentinel or it says stop.
    """
    callbacks = keras.callbacks.CallbackList(
        callbacks,
        add_history=True,
        add_progbar=verbose != 0,
        model=model,
        epochs=epochs,
        steps=steps_per_epoch or data.steps_per_epoch,
        verbose=verbose,
    )
    model.stop_training = False
    model.position.epoch, model.position.step = initial_epoch, initial_step
    model.calls = several_steps.calls_of(model, callbacks.callbacks)
    callbacks.on_train_begin()
    logs = {}
    if _is_whole(model, data, steps_per_epoch):
        model.position.epoch, model.position.step = initial_epoch + 1, 0
        # The run before ended between the epoch's last step and its end.
        callbacks.on_epoch_end(initial_epoch, {})
    if stop_at_step and model.position.global_step >= stop_at_step:
        model.stop_training = True
    while model.position.epoch < epochs and not model.stop_training:
        callbacks.on_epoch_begin(model.position.epoch)
        batches = _batches(model, data, steps_per_epoch, stop_at_step)
        if model.calls is not None:
            batches = model.calls.gathered(batches)
        try:
            logs = _run_epoch(model, batches, callbacks, sentinel)
        except BaseException:
            if model.calls is not None:
                model.calls.catch_up()
            raise
        if stop_at_step and model.position.global_step >= stop_at_step:
            model.stop_training = True
        finished = model.position.epoch
        if not model.stop_training or _is_whole(model, data, steps_per_epoch):
            model.position.epoch, model.position.step = finished + 1, 0
        callbacks.on_epoch_end(finished, logs)
    callbacks.on_train_end(logs)
    model.step_batch = model.calls = None
    return model.history


def _untold(model):
    """Steps that are done, of a call whose results are being told."""
    return 0 if model.calls is None else model.calls.untold


def _is_whole(model, data, steps_per_epoch):
    steps = steps_per_epoch or data.steps_per_epoch
    return steps is not None and model.position.step >= steps


def _batches(model, data, steps_per_epoch, stop_at_step):
    """The distributed batches that are left of the epoch at `model.position`."""
    # Not `model.position` itself: batches may be taken some steps ahead.
    step, global_step = model.position.step, model.position.global_step
    for ahead, batch in enumerate(_distributed_epoch(model, data)):
        if steps_per_epoch and step + ahead >= steps_per_epoch:
            return
        if stop_at_step and global_step + ahead >= stop_at_step:
            return
        yield batch


def _run_epoch(model, batches, callbacks, sentinel):
    """Trains on the batches; returns the means over their examples."""
    position = model.position
    sums, examples, logs = {}, 0, {}
    for batch in batches:
        model.step_batch = batch  # for callbacks that look at what is fed
        callbacks.on_train_batch_begin(position.step)
        result = _step(model, batch, sentinel)
        position.step += 1
        if result:
            count = model.step_examples
            examples += count
            for name, value in result.items():
                sums[name] = sums.get(name, 0.0) + value * count
            logs = {name: value / max(examples, 1e-12) for name, value in sums.items()}
        callbacks.on_train_batch_end(position.step - 1, logs)
        if model.stop_voted:
            model.votes.end()
            raise EndedElsewhereError("Another worker was asked to end the training.")
        if model.stop_training and not _untold(model):
            break
    if not position.step:
        raise ValueError(
            f"Epoch {position.epoch} has no example: the data set is empty."
        )
    return logs


def _step(model, batch, sentinel):
    """Runs a step; returns its results, none of them where nothing was updated."""
    scaled = model.loss_scale
    try:
        result = model.run_step(batch)
    except FloatingPointError:
        if sentinel is None:
            raise
        result = {"finite": False}
    if result.pop("finite", True):
        return result
    if scaled is not None and scaled.explains_skip():
        logging.info(
            "The step after step %d is not finite with loss scale %g and was skipped; "
            "the scale is %g now.",
            model.position.global_step,
            scaled.last_value(),
            scaled.value(),
        )
    elif sentinel is not None:
        sentinel.handle(model, batch)
    else:
        raise FloatingPointError(
            "The loss or a gradient is not finite in the step after step "
            f"{model.position.global_step}, and the loss scale "
            f"({scaled.last_value():g}) cannot be lowered any more; the weights are "
            "those of the step before. Lower the learning rate, warm up, or clip the "
            "gradients (max_gradient_norm)."
        )
    # The batch has been used up, although it left no trace.
    model.position.global_step += 1
    model.step_result = {}
    return {}


def _distributed_epoch(model, data):
    """Yields per-replica batches; explains what is wrong with a bad example."""
    part, where = _own_part(model, data), dataclasses.replace(model.position)
    iterator, last = iter(_dataset(model, data, part)), None
    cut = batching.split if part is None else batching.split_own
    while True:
        try:
            batch = next(iterator, None)
        except READ_ERRORS as error:
            explained = _explained(data, where, error, part)
            if model.votes is None:
                raise explained from error
            # The others are in their step already: end it together.
            model.votes.abort(explained)
            batch = last or _nothing(iterator.element_spec)
        if batch is None:
            return
        last = batch
        where.step += 1
        yield cut(model.strategy, batch)


def _own_part(model, data):
    """The `Part` of the global batches that this worker reads; None: all of them."""
    if model.group.size == 1 or not hasattr(data, "part_of_epoch"):
        return None
    size = batching.padded_size(data.batch_size, model.batch_parts)
    return Part(*batching.own_range(model.strategy, size), size)


def _dataset(model, data, part):
    """The padded global batches that are left of an epoch, or a part of each."""
    position, classes = model.position, model.head.num_classes
    if part is not None:
        own = data.part_of_epoch(position.epoch, position.step, part=part)
        return batching.checked(own, classes)
    left = data.epoch(position.epoch, position.step)
    batching.check_size(left, model.image_size)
    return batching.prepare(
        left,
        data.batch_size,
        model.batch_parts,
        classes,
    )


def _nothing(spec):
    return tf.nest.map_structure(lambda one: tf.zeros(one.shape, one.dtype), spec)


def _explained(data, position, error, part):
    """A ValueError that names the bad example, where the data can tell."""
    explain, only = getattr(data, "explain", None), {}
    if part is not None:
        only["part"] = part
    explained = explain(position.epoch, position.step, **only) if explain else None
    if explained is not None:
        return explained
    return ValueError(f"Reading the training data failed: {reason(error)}")
