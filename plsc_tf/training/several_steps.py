"""Runs several steps per call of one `tf.function` (steps_per_execution).

The batches of a call are collected before it, and the results of its steps are reported
after it, one by one. So every step reaches the callbacks, but the model already has the
weights of the call's last step. A callback that uses the model in
`on_train_batch_begin` or `on_train_batch_end` must declare the steps at which it does:
its method `wants(step)` returns True for each global step after which it needs the
model's weights from that step, and calls end at these steps. A callback that has one of
these hooks but no `wants` is treated as if it wanted every step.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.heads.margins import require
from plsc_tf.training.updates import Updater

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier
    from plsc_tf.training.ending import Votes
    from plsc_tf.training.trainer import Trainer

HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


def check(steps: Any, votes: Votes | None) -> None:
    """Raises ValueError if this number of steps per call is invalid or not supported.

    Args:
        steps: steps per call.
        votes: this worker's `Votes` in a cluster, or None.
    """
    whole = isinstance(steps, int) and not isinstance(steps, bool) and steps >= 1
    rule = "steps_per_execution must be a whole number, at least 1"
    require(whole, rule, steps_per_execution=steps)
    rule = (
        "In a cluster, the workers agree after every step whether to continue, so "
        "steps_per_execution must be 1"
    )
    require(steps == 1 or votes is None, rule, steps_per_execution=steps)


def calls_of(trainer: Trainer, callbacks: Any) -> MultiStepCalls | None:
    """Creates the `MultiStepCalls` of a training run; None if each call runs one step.

    Args:
        trainer: the `Trainer`.
        callbacks: the training's Keras callbacks.

    Raises:
        ValueError: the trainer has a custom step or updater.
    """
    steps = trainer.model.steps_per_execution
    if steps == 1:
        return None
    if trainer.custom_step is not None or trainer.updater_class is not Updater:
        raise ValueError(
            "Training with a custom step or updater runs one step per call, so "
            f"steps_per_execution must be 1. Received: steps_per_execution={steps}"
        )
    return MultiStepCalls(trainer, callbacks)


def run(trainer: Trainer, batches: Any) -> tf.Tensor:
    """Runs steps one after the other, inside a `tf.function`.

    If a step produces NaN or infinity, the following steps of the call change nothing.
    The graph contains the steps one by one: in a loop or in separate functions,
    TensorFlow would reorder their sums, and the results would differ in the last bits.

    Args:
        trainer: the `Trainer`.
        batches: list of per-replica (images, labels, weights).

    Returns:
        float64 `[len(batches), names]`, results in the order of `result_names`.
    """
    names, rows, finite = result_names(trainer.model), [], None
    local_results = trainer.model.strategy.experimental_local_results
    try:
        for batch in batches:
            trainer.updater.votes = None if finite is None else _Gate(~finite)
            outcome = trainer.distributed_step(batch)
            local = {name: local_results(outcome[name])[0] for name in names}
            finite = local["finite"]
            # Every number of a step is exact in float64.
            rows.append(tf.stack([tf.cast(local[name], tf.float64) for name in names]))
    finally:
        trainer.updater.votes = None
    return tf.stack(rows)


class _Gate:
    """Stands in for `Votes` to abort the steps after one with NaN or infinity.

    Args:
        aborted: bool scalar, True to abort the step.
    """

    def __init__(self, aborted):
        self._aborted = aborted

    def own(self):
        """Returns no votes, see `plsc_tf.training.ending.Votes`."""
        return []

    def outcome(self, sums):
        """Returns the outcome, see `plsc_tf.training.ending.Votes`."""
        del sums
        return {"aborted": self._aborted}


def result_names(model: Classifier) -> list[str]:
    """Returns the names of the results of `train_step` without votes."""
    weights = ["weights"] if model.weighted_metrics else []
    return ["loss", "examples", "finite", *weights, *model.ranked_metrics]


class MultiStepCalls:
    """Runs the steps, several per call, and returns their results one by one.

    Args:
        trainer: the `Trainer`.
        callbacks: the training's Keras callbacks.

    """

    def __init__(self, trainer: Trainer, callbacks: Any) -> None:
        self._trainer, self._model = trainer, trainer.model
        self._most = self._model.steps_per_execution
        self._wants = [_wants(callback) for callback in callbacks if _looks(callback)]
        self._gathered: collections.deque = collections.deque()
        self._results: collections.deque = collections.deque()
        self._warm = False

    @property
    def unreported(self) -> int:
        """Number of finished steps whose results have not been returned yet."""
        return len(self._results)

    def gathered(self, batches: Any) -> Iterator[Any]:
        """Yields the batches, after collecting all batches of the next call.

        Args:
            batches: iterator of per-replica batches.

        Raises:
            Exception: the iterator's error, raised after all earlier batches have been
                yielded.
        """
        batches, error, ended = iter(batches), None, False
        self._gathered.clear()
        while True:
            room = 0 if ended or self._results else self._room()
            while not ended and len(self._gathered) < room:
                try:
                    self._gathered.append(next(batches))
                except StopIteration:
                    ended = True
                except Exception as raised:  # noqa: BLE001 - raised again below
                    error, ended = raised, True
            if not self._gathered:
                break
            batch = self._gathered[0]
            yield batch
            if self._gathered and self._gathered[0] is batch:
                self._gathered.popleft()  # `outcome` was not called for this batch
        if error is not None:
            raise error

    def outcome(self, batch: Any) -> dict[str, float] | None:
        """Returns the results of the step on a batch, after running a call if needed.

        Args:
            batch: the batch that `gathered` yielded last.

        Returns:
            dict of floats with the results of `plsc_tf.training.trainer.train_step`;
            None if the caller must run this step by itself.
        """
        if not self._gathered or batch is not self._gathered[0]:
            return None
        if not self._results:
            self._run()
        self._gathered.popleft()
        return self._results.popleft() if self._results else None

    def catch_up(self) -> None:
        """Counts finished steps whose results were not reported because of an error.

        This moves the position to the step of the current weights, for a checkpoint. A
        step with NaN or infinity has changed nothing and is not counted; a resumed run
        repeats its batch.
        """
        self._advance(sum(bool(outcome["finite"]) for outcome in self._results))
        self._results.clear()
        self._gathered.clear()

    def _run(self):
        """Runs the next call if there are enough collected batches."""
        function = self._trainer.several_steps_function
        batches = [self._gathered[i % len(self._gathered)] for i in range(self._most)]
        if not self._warm:
            # Trace the graph in the first step, which time measurements leave out.
            function.get_concrete_function(batches)
            self._warm = True
            return
        if min(len(self._gathered), self._room()) < self._most:
            return
        updates = self._model.optimizer.iterations.numpy()
        try:
            table = function(batches).numpy()
        except BaseException:
            # Steps before the one that failed have already updated the weights.
            self._advance(int(self._model.optimizer.iterations.numpy() - updates))
            raise
        names = result_names(self._model)
        for row in table.tolist():
            self._results.append(dict(zip(names, row, strict=True)))
            if not self._results[-1]["finite"]:
                break

    def _advance(self, steps):
        self._trainer.position.step += steps
        self._trainer.position.global_step += steps

    def _room(self):
        """Returns how many steps the next call may run before a callback wants one."""
        most = self._most if self._warm else 1
        step = self._trainer.position.global_step
        for i in range(1, most):
            if any(wants(step + i) for wants in self._wants):
                return i
        return most


def _looks(callback):
    """Returns whether a callback has hooks before or after single steps."""
    kind, base = type(callback), keras.callbacks.Callback
    return not isinstance(callback, keras.callbacks.ProgbarLogger) and any(
        name in vars(callback) or getattr(kind, name) is not getattr(base, name)
        for name in HOOKS
    )


def _wants(callback):
    wants = getattr(callback, "wants", None)
    if wants is not None:
        return wants
    text = "%s has no wants(step), so that steps_per_execution has no effect."
    logging.info(text, type(callback).__name__)
    return lambda step: True
