"""The training loop: Keras's `fit`, on all devices of a machine."""

import dataclasses

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.data.faults import READ_ERRORS, reason
from plsc_tf.data.part import Part
from plsc_tf.data.pixel_range import check_range
from plsc_tf.training import batching, diagnosis, several_steps, user_data
from plsc_tf.training.votes import EndedElsewhereError

# What a step's examples are counted in; see `Position.sums`.
COUNTS = EXAMPLES, WEIGHTS = "examples", "weights"


@dataclasses.dataclass
class Position:
    """Where a run stands; what a resume needs beside the weights.

    Attributes:
        epoch: number of the running epoch, from 0.
        step: steps of it that are done.
        global_step: steps done since the run began.
        sums: of the epoch's examples so far, their number as "examples", of their
            weights as "weights" where there are weighted metrics, and figure by figure.
    """

    epoch: int = 0
    step: int = 0
    global_step: int = 0
    sums: dict = dataclasses.field(default_factory=dict)

    def go_to(self, other):
        """Takes over another position."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(other, field.name))

    def add(self, figures, counts, weighted=()):
        """Counts a step's figures.

        Args:
            figures: means over the step's examples.
            counts: `{"examples": their number}`, and their "weights".
            weighted: names of the figures that are means by weight.
        """
        # A new dict: copies of this position keep theirs.
        sums = {**dict.fromkeys(counts, 0.0), **self.sums}
        for name, value in counts.items():
            sums[name] += value
        for name, value in figures.items():
            count = counts[WEIGHTS if name in weighted else EXAMPLES]
            sums[name] = sums.get(name, 0.0) + value * count
        self.sums = sums

    def means(self, weighted=()):
        """The epoch's figures so far; `weighted` as of `add`."""
        totals = {name: max(self.sums.get(name, 0.0), 1e-12) for name in COUNTS}
        return {
            name: value / totals[WEIGHTS if name in weighted else EXAMPLES]
            for name, value in self.sums.items()
            if name not in totals
        }


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
        initial_step: steps of the first epoch that are done already; what a
            checkpoint knows of them counts for the epoch's means.
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
    user_data.check_endless(data, steps_per_epoch or stop_at_step, "steps_per_epoch")
    passes = None
    if steps_per_epoch and getattr(data, "one_pass", False):
        passes = _Passes(model, data, steps_per_epoch)
    model.stop_training = False
    model.position.epoch, model.position.step = initial_epoch, initial_step
    if not initial_step:
        model.position.sums = {}
    model.calls = several_steps.calls_of(model, callbacks.callbacks)
    callbacks.on_train_begin()
    logs = {}
    if _is_whole(model, data, steps_per_epoch):
        # The run before ended between the epoch's last step and its end.
        logs = model.position.means(model.weighted_metrics)
        _end_epoch(model, callbacks, logs, whole=True)
    if stop_at_step and model.position.global_step >= stop_at_step:
        model.stop_training = True
    while model.position.epoch < epochs and not model.stop_training:
        callbacks.on_epoch_begin(model.position.epoch)
        feed = _distributed_epoch(model, data, passes)
        batches = _batches(model, feed, steps_per_epoch, stop_at_step)
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
        whole = not model.stop_training or _is_whole(model, data, steps_per_epoch)
        _end_epoch(model, callbacks, logs, whole)
    callbacks.on_train_end(logs)
    model.step_batch = model.calls = None
    return model.history


def _end_epoch(model, callbacks, logs, whole):
    """Tells the callbacks, from whom on the next epoch counts if this one is whole."""
    finished = model.position.epoch
    if whole:
        model.position.epoch, model.position.step = finished + 1, 0
        model.position.sums = {}
    callbacks.on_epoch_end(finished, logs)


def _untold(model):
    """Steps that are done, of a call whose results are being told."""
    return 0 if model.calls is None else model.calls.untold


def _is_whole(model, data, steps_per_epoch):
    steps = steps_per_epoch or data.steps_per_epoch
    return steps is not None and model.position.step >= steps


def _batches(model, feed, steps_per_epoch, stop_at_step):
    """Those of the batches of `feed` that are left at `model.position`."""
    # Not `model.position` itself: batches may be taken some steps ahead.
    step, global_step = model.position.step, model.position.global_step
    # A batch that is not trained on must not be taken: the next epoch wants it.
    while not (steps_per_epoch and step >= steps_per_epoch) and not (
        stop_at_step and global_step >= stop_at_step
    ):
        batch = next(feed, None)
        if batch is None:
            return
        yield batch
        step, global_step = step + 1, global_step + 1


def _run_epoch(model, batches, callbacks, sentinel):
    """Trains on the batches; returns the means over their examples."""
    position, logs = model.position, {}
    for batch in batches:
        model.step_batch = batch  # for callbacks that look at what is fed
        callbacks.on_train_batch_begin(position.step)
        result = _step(model, batch, sentinel)
        position.step += 1
        if result:
            position.add(result, model.step_counts, model.weighted_metrics)
            logs = position.means(model.weighted_metrics)
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
    result = model.run_step(batch)
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
        raise diagnosis.error(model, batch)
    # The batch has been used up, although it left no trace.
    model.position.global_step += 1
    model.step_result = {}
    return {}


class _Passes:
    """One pass after the other over a user's data set, whatever epochs are.

    A run that is resumed leaves out what was trained on, if the data set is always the
    same.

    Args:
        model: the `Classifier`.
        data: a data set with `one_pass`.
        steps_per_epoch: steps of an epoch.
    """

    def __init__(self, model, data, steps_per_epoch):
        self._model, self._data = model, data
        self._steps_per_epoch = steps_per_epoch
        self._iterator = None

    def __next__(self):
        if self._iterator is None:
            position = self._model.position
            done = position.epoch * self._steps_per_epoch + position.step
            if self._data.steps_per_epoch:
                done %= self._data.steps_per_epoch
            self._iterator = self._from(done)
        try:
            return next(self._iterator)
        except StopIteration:
            self._iterator = self._from(0)
        return next(self._iterator)

    @property
    def element_spec(self):
        """Of the padded global batches."""
        return self._iterator.element_spec

    def _from(self, step):
        left = self._data.epoch(0, step)
        return iter(prepared(self._model, self._data, left, self._model.batch_parts))


def _distributed_epoch(model, data, passes):
    """Yields per-replica batches; explains what is wrong with a bad example."""
    part, where = _own_part(model, data), dataclasses.replace(model.position)
    iterator, last = passes, None
    if passes is None:
        iterator = iter(_dataset(model, data, part))
    cut = batching.split if part is None else batching.split_own
    while True:
        try:
            batch = next(iterator, None)
        except READ_ERRORS as error:
            fault = explained(data, where, error, part)
            if model.votes is None:
                raise fault from error
            # The others are in their step already: end it together.
            model.votes.abort(fault)
            batch = last or _nothing(iterator.element_spec)
        if batch is None:
            return
        if last is None and batch[0].dtype.is_floating:
            check_range(batch[0].numpy(), "images")
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
    return prepared(model, data, left, model.batch_parts)


def prepared(model, data, left, parts):
    """What is left of a data set as checked and padded global batches.

    Args:
        model: the `Classifier`.
        data: where it comes from.
        left: `tf.data.Dataset` of (images, labels[, weights]).
        parts: what the padded size must be divisible by.
    """
    batching.check_pictures(left, model.backbone.input_shape)
    return batching.prepare(left, data.batch_size, parts, model.head.num_classes)


def _nothing(spec):
    return tf.nest.map_structure(lambda one: tf.zeros(one.shape, one.dtype), spec)


def explained(data, position, error, part=None, what="training data"):
    """A ValueError that names the bad example, where the data can tell.

    Args:
        data: what was read.
        position: the `Position` of the batch that failed.
        error: TensorFlow's.
        part: the `Part` of the global batches that was read; None: all of them.
        what: the data is, for the message.
    """
    explain, only = getattr(data, "explain", None), {}
    if part is not None:
        only["part"] = part
    found = explain(position.epoch, position.step, **only) if explain else None
    return found or ValueError(f"Reading the {what} failed: {reason(error)}")
