"""Contains the position of a run in its data, and creates per-replica batches."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from plsc_tf.data import faults, pipeline, sampling
from plsc_tf.data.images import check_range
from plsc_tf.parallel.strategy import device_kind, local_replicas
from plsc_tf.requirements import require
from plsc_tf.training import batching
from plsc_tf.training.circular import Classifier

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

    def go_to(self, other: "Position") -> None:
        """Copies another position into this one."""
        vars(self).update(vars(other))

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
        added = dict(counts)
        for name, value in figures.items():
            added[name] = value * counts[WEIGHTS if name in weighted else EXAMPLES]
        # Make a new dict: copies of this position share the old one.
        sums = {name: self.sums.get(name, 0.0) + n for name, n in added.items()}
        self.sums = self.sums | sums

    def means(self, weighted: Iterable[str] = ()) -> dict[str, float]:
        """Returns the epoch's means so far; `weighted` as in `add`."""
        totals = {name: max(self.sums.get(name, 0.0), 1e-12) for name in COUNTS}
        sums = {name: value for name, value in self.sums.items() if name not in totals}
        kinds = {name: WEIGHTS if name in weighted else EXAMPLES for name in sums}
        return {name: value / totals[kinds[name]] for name, value in sums.items()}


def batches_of_epoch(
    model: Classifier,
    data: Any,
    batches: Iterator[Any] | None,
    class_weight: Mapping[int, float] | None,
    count: int | None = None,
) -> Iterator[Any]:
    """Yields an epoch's per-replica batches from the trainer's position on.

    Each batch is on its way to the replicas' GPUs while the previous one is used.

    Args:
        model: the `Classifier`.
        data: the training data.
        batches: iterator of the data's batches, or None to read the epoch.
        class_weight: `{label: weight}`, or None.
        count: maximum number of batches to take, or None for all.

    Raises:
        ValueError: a batch could not be read; names the bad example if possible. In a
            cluster, this worker votes to abort instead.
    """
    part, votes = None, model.trainer.votes
    if model.trainer.group.size > 1 and isinstance(data, pipeline.Batches):
        # This worker reads only its part of each global batch.
        size = batching.padded_size(data.batch_size, model.trainer.batch_parts)
        part = sampling.Part(*batching.own_range(model.strategy, size))
    # Its threads start with the first copy.
    with ThreadPoolExecutor(len(local_replicas(model.strategy))) as threads:
        pool = threads if device_kind(model.strategy) == "GPU" else None

        def sent(batch, fault):
            if batch is None:
                return None, fault
            batch = batching.weighted(batch, class_weight)
            return batching.send(model.strategy, batch, part is not None, pool), fault

        on_the_way = itertools.starmap(sent, _taken(model, data, batches, part, count))
        # Take the next batch before this one is passed on.
        for (wait, fault), _ in itertools.pairwise(itertools.chain(on_the_way, [None])):
            if wait is None:
                raise fault
            if fault is not None and votes is not None:
                # The other workers also begin this step, so end it together with them.
                votes.abort(fault)
            yield wait()


def _taken(model, data, batches, part, count):
    """Yields (padded batch, None), and after an error at last (any batch, error).

    Without votes, there is no batch in the last pair: (None, error).
    """
    trainer = model.trainer
    begin = trainer.position.epoch, trainer.position.step
    if part is not None:
        batches = iter(data.epoch(*begin, part))
    elif batches is None:
        batches = iter(data.epoch(*begin))
    size = batching.padded_size(data.batch_size, trainer.batch_parts)
    last, batches = None, itertools.islice(batches, count)
    try:
        for last in padded_batches(model, data, batches, size, begin, part):
            yield last, None
    except Exception as fault:  # noqa: BLE001 - `batches_of_epoch` raises it
        if trainer.votes is not None:
            last = last or _blank(model, data, part.size if part else size)
        yield last if trainer.votes is not None else None, fault


def padded_batches(
    model: Classifier,
    data: Any,
    batches: Iterator[Any],
    size: int,
    begin: tuple[int, int] = (0, 0),
    part: sampling.Part | None = None,
) -> Iterator[tuple[tf.Tensor, ...]]:
    """Yields the batches of an epoch, checked and padded for the replicas.

    Args:
        model: the `Classifier`.
        data: the data; its method `explain`, if any, finds a bad example.
        batches: iterator of global batches (images, labels[, weights]), or of their
            padded parts.
        size: number of examples of a padded global batch.
        begin: (epoch, step) of the first batch.
        part: the `Part` of each global batch that is read, or None for all.

    Raises:
        ValueError: a batch could not be read; names the bad example if possible.
    """
    epoch, first = begin
    for step in itertools.count(first):
        try:
            batch = _next(model, batches, size, part, first=step == first)
        except (*faults.READ_ERRORS, ValueError) as error:
            explain = getattr(data, "explain", None)
            found = explain(epoch, step, part=part) if explain else None
            text = f"Reading the data failed: {faults.reason(error)}"
            raise found or ValueError(text) from error
        if batch is None:
            return
        yield batch


def _next(model, batches, size, part=None, first=False):
    """Returns the next batch, checked and padded by `batching.pad`; None at the end."""
    if (element := next(batches, None)) is None:
        return None
    images, labels, *weights = element
    if part is None:
        batching.check_images(images.shape, model.backbone.input_shape)
        images, labels, *weights = batching.checked(images, labels, *weights)
    if first:
        check_range(np.asarray(images), "images")
    batching.check_classes(labels, model.head.num_classes)
    if part is not None:
        return element  # already padded
    rule = "The first batch must be the largest; call .batch() after .shuffle()"
    require(len(labels) <= size, rule, first=size, batch=len(labels))
    return batching.pad(images, labels, weights[0] if weights else None, size)


def _blank(model, data, size):
    """Returns a batch of zeros for a step that all workers abort."""
    epoch = data.epoch(0)
    images, _, *weights = getattr(epoch, "element_spec", None) or next(epoch)
    shape = [size, *model.backbone.input_shape[1:]]
    floats = [tf.zeros([size])] * (1 + len(weights))
    return tf.zeros(shape, images.dtype), tf.zeros([size], tf.int64), *floats
