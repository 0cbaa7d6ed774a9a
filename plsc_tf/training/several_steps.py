"""Several steps per call of one `tf.function` (steps_per_execution).

The batches of a call are gathered before it, and the results of its steps are
reported after it, one by one. So callbacks, losses and positions see every step, while
weights are those of the call's last one. A callback that looks at the model in
`on_train_batch_begin` or `on_train_batch_end` says where: its method `wants(step)` is
true for the global steps after which the model must be as it was then, and calls
end there. A callback with such a hook and without `wants` wants every step.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.heads.margins import require
from plsc_tf.parallel import collectives
from plsc_tf.training.updates import Updater

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier
    from plsc_tf.training.ending import Votes
    from plsc_tf.training.trainer import Trainer

HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


def check(steps: Any, votes: Votes | None) -> None:
    """Raises ValueError where so many steps in a call are impossible.

    Args:
        steps: steps per call.
        votes: the `Votes` of a cluster, or None.
    """
    whole = isinstance(steps, int) and not isinstance(steps, bool) and steps >= 1
    rule = "steps_per_execution must be a whole number, at least 1"
    require(whole, rule, steps_per_execution=steps)
    rule = (
        "The workers of a cluster decide after every step together whether to "
        "continue, so steps_per_execution must be 1 there"
    )
    require(steps == 1 or votes is None, rule, steps_per_execution=steps)


def calls_of(trainer: Trainer, callbacks: Any) -> Calls | None:
    """The `Calls` of a training, or None with one step per call.

    Args:
        trainer: the `Trainer`.
        callbacks: the Keras callbacks of the training.

    Raises:
        ValueError: the model's steps are not those of `train_step`.
    """
    steps = trainer.model.steps_per_execution
    if steps == 1:
        return None
    if trainer.custom_step is not None or trainer.updater_class is not Updater:
        raise ValueError(
            "This stage of training has its own steps, so steps_per_execution must be "
            f"1. Received: steps_per_execution={steps}"
        )
    return Calls(trainer, callbacks)


def run(trainer: Trainer, batches: Any) -> tf.Tensor:
    """Runs steps one after the other, in a `tf.function`.

    Behind one that is not finite the others leave no trace. The steps stand in the
    graph side by side: within a loop, or as separate functions, TensorFlow rewrites
    their sums in another order, and the last bits are others.

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
    """`Votes` by which a step of a call is aborted when one before it was not finite.

    Args:
        aborted: bool scalar.
    """

    def __init__(self, aborted):
        self._aborted = aborted

    def count(self, unhealthy):
        """See `plsc_tf.training.ending.Votes.count`."""
        return collectives.all_sum(unhealthy), {"aborted": self._aborted}


def result_names(model: Classifier) -> list[str]:
    """What a step without votes returns, see `plsc_tf.training.trainer.train_step`."""
    weights = ["weights"] if model.weighted_metrics else []
    return ["loss", "examples", "finite", *weights, *model.ranked_metrics]


class Calls:
    """Runs a training's steps, several per call; results are handed out singly.

    Args:
        trainer: the `Trainer`.
        callbacks: the Keras callbacks of the training.

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
        """Number of steps that are done and not reported yet."""
        return len(self._results)

    def gathered(self, batches: Any) -> Iterator[Any]:
        """Yields the batches, of which those of a call are taken before it.

        Args:
            batches: iterator of per-replica batches.

        Raises:
            Exception: of the iterator, after all batches before it were trained on.
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
                self._gathered.popleft()  # its step was made in another way
        if error is not None:
            raise error

    def outcome(self, batch: Any) -> dict[str, float] | None:
        """The results of the step on this batch; None: it is to be made singly.

        Args:
            batch: the one that `gathered` has yielded last.

        Returns:
            dict of floats, as of `plsc_tf.training.trainer.train_step`.
        """
        if not self._gathered or batch is not self._gathered[0]:
            return None
        if not self._results:
            self._run()
        self._gathered.popleft()
        return self._results.popleft() if self._results else None

    def catch_up(self) -> None:
        """Counts steps whose results are not reported because of an error.

        So that a checkpoint of these weights has their position. A step that is not
        finite has left no trace and is not counted: a resumed run meets its batch.
        """
        self._advance(sum(bool(outcome["finite"]) for outcome in self._results))
        self._results.clear()
        self._gathered.clear()

    def _run(self):
        """The next call, if the gathered batches fill one."""
        function = self._trainer.several_steps_function
        batches = [self._gathered[i % len(self._gathered)] for i in range(self._most)]
        if not self._warm:
            # Who takes the time leaves out the first step, so that it makes the graphs.
            function.get_concrete_function(batches)
            self._warm = True
            return
        if min(len(self._gathered), self._room()) < self._most:
            return
        updates = self._model.optimizer.iterations.numpy()
        try:
            table = function(batches).numpy()
        except BaseException:
            # The step that failed was not the first of the call.
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
        """Steps until the next one that a callback wants, and so many at most."""
        most = self._most if self._warm else 1
        step = self._trainer.position.global_step
        for i in range(1, most):
            if any(wants(step + i) for wants in self._wants):
                return i
        return most


def _looks(callback):
    """Whether a callback does something before or after single steps."""
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
