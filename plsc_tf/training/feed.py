"""Contains the position of a run in its data, and creates per-replica batches."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from plsc_tf.data.faults import READ_ERRORS, reason
from plsc_tf.data.images import check_range
from plsc_tf.data.sampling import Part
from plsc_tf.training import batching

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier

# Keys of the counts of a step's examples and their weights; see `Position.sums`.
COUNTS = EXAMPLES, WEIGHTS = "examples", "weights"


@dataclasses.dataclass
class Position:
    """The position of a run, which a resume needs in addition to the weights.

    Attributes:
        epoch: number of the current epoch, from 0.
        step: number of finished steps in the current epoch.
        global_step: number of finished steps since the run began.
        sums: totals over the epoch's examples so far: their number ("examples"), the
            sum of their weights ("weights", if there are weighted metrics), and the sum
            of the loss and of each metric.
    """

    epoch: int = 0
    step: int = 0
    global_step: int = 0
    sums: dict = dataclasses.field(default_factory=dict)

    def go_to(self, other: Position) -> None:
        """Copies another position into this one."""
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(other, field.name))

    def add(
        self,
        figures: Mapping[str, float],
        counts: Mapping[str, float],
        weighted: Iterable[str] = (),
    ) -> None:
        """Adds a step's results to `sums`.

        Args:
            figures: `{name: mean over the step's examples}`, loss and metrics.
            counts: the step's number of "examples" and, if weighted metrics are used,
                the sum of their "weights".
            weighted: names of the figures that are weighted means.
        """
        # Make a new dict: copies of this position share the old one.
        sums = {**dict.fromkeys(counts, 0.0), **self.sums}
        for name, value in counts.items():
            sums[name] += value
        for name, value in figures.items():
            count = counts[WEIGHTS if name in weighted else EXAMPLES]
            sums[name] = sums.get(name, 0.0) + value * count
        self.sums = sums

    def means(self, weighted: Iterable[str] = ()) -> dict[str, float]:
        """Returns the epoch's means so far; `weighted` as in `add`."""
        totals = {name: max(self.sums.get(name, 0.0), 1e-12) for name in COUNTS}
        return {
            name: value / totals[WEIGHTS if name in weighted else EXAMPLES]
            for name, value in self.sums.items()
            if name not in totals
        }


class Passes:
    """Iterates over a user's data set again and again, independently of epochs.

    A resumed run skips the batches it has already trained on, which is correct if the
    data set always yields the same batches.

    Args:
        model: the `Classifier`.
        data: a data set with `one_pass`.
        steps_per_epoch: steps of an epoch.
    """

    def __init__(self, model: Classifier, data: Any, steps_per_epoch: int) -> None:
        self._model, self._data = model, data
        self._steps_per_epoch = steps_per_epoch
        self._iterator: Any = None

    def __next__(self):
        if self._iterator is None:
            position = self._model.trainer.position
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
    def element_spec(self) -> Any:
        """The `element_spec` of the padded global batches."""
        return self._iterator.element_spec

    def _from(self, step):
        left = self._data.epoch(0, step)
        return iter(
            prepared(self._model, self._data, left, self._model.trainer.batch_parts)
        )


def batches_of_epoch(model: Classifier, data: Any, passes: Any) -> Iterator[Any]:
    """Yields an epoch's per-replica batches from the trainer's position on.

    Args:
        model: the `Classifier`.
        data: the training data.
        passes: the `Passes` to take batches from, or None to read the epoch.

    Raises:
        ValueError: a batch could not be read; names the bad example if possible. In a
            cluster, this worker votes to abort instead.
    """
    part, where = _local_part(model, data), dataclasses.replace(model.trainer.position)
    iterator, last = passes, None
    if passes is None:
        iterator = iter(_dataset(model, data, part))
    while True:
        try:
            batch = next(iterator, None)
        except READ_ERRORS as error:
            fault = explained(data, where, error, part)
            if model.trainer.votes is None:
                raise fault from error
            # The other workers are already in the step, so end it together with them.
            model.trainer.votes.abort(fault)
            batch = last or _nothing(iterator.element_spec)
        if batch is None:
            return
        if last is None and batch[0].dtype.is_floating:
            check_range(batch[0].numpy(), "images")
        last = batch
        where.step += 1
        yield batching.split(model.strategy, batch, local=part is not None)


def _local_part(model, data):
    """Returns the `Part` of each global batch that this worker reads; None for all."""
    if model.trainer.group.size == 1 or not hasattr(data, "part_of_epoch"):
        return None
    size = batching.padded_size(data.batch_size, model.trainer.batch_parts)
    return Part(*batching.own_range(model.strategy, size), size)


def _dataset(model, data, part):
    """Returns the epoch's remaining padded global batches, or a part of each."""
    position, classes = model.trainer.position, model.head.num_classes
    if part is not None:
        part_of_epoch = data.part_of_epoch(position.epoch, position.step, part=part)
        return batching.checked(part_of_epoch, classes)
    left = data.epoch(position.epoch, position.step)
    return prepared(model, data, left, model.trainer.batch_parts)


def prepared(
    model: Classifier, data: Any, left: tf.data.Dataset, parts: int
) -> tf.data.Dataset:
    """Checks and pads the remaining global batches of an epoch.

    Args:
        model: the `Classifier`.
        data: the data, which has `batch_size`.
        left: `tf.data.Dataset` of the remaining batches (images, labels[, weights]).
        parts: the padded size is a multiple of this number.

    Returns:
        `tf.data.Dataset` of batches padded by `batching.pad`.
    """
    spec = left.element_spec
    shape = getattr(spec[0] if isinstance(spec, tuple) else spec, "shape", None)
    if shape is not None and shape.rank == 4:
        batching.check_shape(shape, model.backbone.input_shape)
    return batching.prepare(left, data.batch_size, parts, model.head.num_classes)


def _nothing(spec):
    return tf.nest.map_structure(lambda one: tf.zeros(one.shape, one.dtype), spec)


def explained(
    data: Any,
    position: Position,
    error: Exception,
    part: Part | None = None,
    what: str = "training data",
) -> Exception:
    """Creates a ValueError, which names the bad example if the data has `explain`.

    Args:
        data: the data that was read.
        position: the `Position` of the batch that failed.
        error: TensorFlow's error.
        part: the `Part` of the global batches that was read, or None for all.
        what: description of the data for the message.
    """
    explain, only = getattr(data, "explain", None), {}
    if part is not None:
        only["part"] = part
    error_of_data = explain(position.epoch, position.step, **only) if explain else None
    return error_of_data or ValueError(f"Reading the {what} failed: {reason(error)}")
