"""Launches steps before the results of earlier ones are read, one or several per call.

A call of the step's `tf.function` is launched before the results of the previous call
are read, so that a GPU does not wait for the host. With `steps_per_execution`, a call
runs several steps. Every step is still reported to the callbacks, one by one, but the
model may already have the weights of a later step. A callback that uses the model in
`on_train_batch_begin` or `on_train_batch_end` must declare the steps at which it does:
its method `wants(step)` returns True for each global step after which it needs the
model's weights from that step. Calls end at these steps, and no call is launched ahead
of their report. A callback that has one of these hooks but no `wants` is treated as if
it wanted every step.

Each step gets the previous step's flag `finite`, on the device. So if a step produces
NaN or infinity, the steps that were launched after it change nothing: neither weights,
statistics and random states nor the loss scale. They are launched again. In a cluster,
the workers agree after every step whether to continue, so no step is launched ahead.
"""

import collections
import contextlib
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from plsc_tf.parallel.strategy import device_kind, local_devices
from plsc_tf.requirements import require
from plsc_tf.training import batching, replica_step
from plsc_tf.training.circular import Trainer
from plsc_tf.training.updates import Updater

HOOKS = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")


def check(steps: Any, trainer: Trainer) -> None:
    """Raises ValueError if a trainer cannot run this number of steps per call."""
    rule = "steps_per_execution must be a whole number, at least 1"
    require(isinstance(steps, int) and steps >= 1, rule, steps_per_execution=steps)
    alone = trainer.votes is None and trainer.updater_class is Updater
    rule = "In a cluster, the workers agree after every step whether to continue, and"
    rule += " stage 2 searches a step size, so steps_per_execution must be 1"
    require(steps == 1 or alone, rule, steps_per_execution=steps)


def run(trainer: Trainer, batches: Any, proceed: Any) -> tuple[tf.Tensor, Any]:
    """Runs steps one after the other, inside a `tf.function`.

    The graph contains the steps one by one: in a loop or in separate functions,
    TensorFlow would reorder their sums, and the results would differ in the last bits.

    Args:
        trainer: the `Trainer`.
        batches: list of per-replica (images, labels, weights).
        proceed: per-replica bool scalar; False makes all steps change nothing.

    Returns:
        (float64 `[len(batches), names]`, results in the order of `_names`; per-replica
        bool scalar, `proceed` of the following step).
    """
    strategy, rows = trainer.model.strategy, []
    step = functools.partial(replica_step.train_step, trainer.model)
    for batch in batches:
        outcome = strategy.run(step, args=(proceed, *batch))
        proceed = outcome["finite"]
        values = [outcome[name] for name in _names(trainer)]
        row = [strategy.experimental_local_results(value)[0] for value in values]
        # Every number of a step is exact in float64.
        rows.append(tf.stack([tf.cast(value, tf.float64) for value in row]))
    return tf.stack(rows), proceed


def _names(trainer):
    """Returns the names of a step's results, see `train_step`."""
    model = trainer.model
    weights = ["weights"] if model.weighted_metrics else []
    votes = [] if trainer.votes is None else ["stop", "aborted"]
    others = [] if model.distillation is None else ["distillation"]
    others += weights + list(model.ranked_metrics) + votes
    return ["loss", "examples", "finite", *others]


class Call(NamedTuple):
    """A call in flight.

    Attributes:
        steps: its number of steps.
        results: function that waits for the results of its steps and returns them: a
            list of dicts of floats.
        proceed: the flag for the following step; None if no step may follow before the
            results are read.
    """

    steps: int
    results: Callable[[], list]
    proceed: Any = None


def launch(
    trainer: Trainer, batches: list, proceed: Any = None, pool: Executor | None = None
) -> Call:
    """Launches a step on each batch; on GPUs, does not wait until they are done.

    Args:
        trainer: the `Trainer`.
        batches: list of per-replica batches.
        proceed: the flag of the previous call if its results are not known yet.
        pool: a thread that reads the results, so that it begins before the next call is
            launched. A copy from a GPU waits for all work that the GPU already has.
    """
    trainer.start_averages()
    if trainer.custom_step is not None:
        row = trainer.custom_step(*batches)
        return Call(1, lambda: [row])
    if proceed is None:
        proceed = trainer.proceed
    table, proceed = trainer.step_function(batches, proceed)
    read = table.numpy if pool is None else pool.submit(table.numpy).result
    names = _names(trainer)

    def results():
        return [dict(zip(names, row, strict=True)) for row in read().tolist()]

    return Call(len(batches), results, proceed if trainer.votes is None else None)


def always(strategy: tf.distribute.Strategy) -> Any:
    """Returns the `proceed` of a step whose previous steps are all known."""
    flags = []
    for device in local_devices(strategy):
        with tf.device(device):
            flags.append(tf.constant(True))
    # `strategy.run` returns the value of a single replica as it is.
    return batching.per_replica(strategy, flags) if len(flags) > 1 else flags[0]


class Calls:
    """Runs the steps of a training, and returns their results one by one.

    Args:
        trainer: the `Trainer`.
        callbacks: the training's Keras callbacks.
    """

    def __init__(self, trainer: Trainer, callbacks: Any) -> None:
        self._trainer, self._model = trainer, trainer.model
        self._most = self._model.steps_per_execution
        # Elsewhere, running ahead gains nothing.
        gains = self._most > 1 or device_kind(self._model.strategy) == "GPU"
        self._pool = ThreadPoolExecutor(1) if gains else None
        looking = filter(_looks, callbacks)
        self._wants = [getattr(c, "wants", lambda step: True) for c in looking]
        self._batches: Iterator = iter(())
        self._error: Exception | None = None
        # Batches that were taken; the first one is the next to report.
        self._gathered: collections.deque = collections.deque()
        self._calls: collections.deque[Call] = collections.deque()
        self._results: collections.deque = collections.deque()
        self._reported = int(self._model.optimizer.iterations.numpy())
        self._warm = False

    @property
    def unreported(self) -> int:
        """Number of launched steps whose results have not been returned yet."""
        return len(self._results) + sum(call.steps for call in self._calls)

    def gathered(self, batches: Any) -> Iterator[Any]:
        """Yields the batches, and takes those of the next calls ahead.

        Args:
            batches: iterator of per-replica batches.

        Raises:
            Exception: the iterator's error, raised after all earlier batches have been
                yielded.
        """
        self._batches, self._error = iter(batches), None
        self._gathered.clear()
        while self._gather(self.unreported + 1) or self._gathered:
            yield self._gathered[0]
        if self._error is not None:
            raise self._error

    def outcome(self) -> dict[str, float]:
        """Returns the results of the step on the batch that `gathered` yielded last.

        It also launches further steps. The results are those of
        `plsc_tf.training.replica_step.train_step`, as floats.
        """
        if not self._results:
            if not self._calls:
                self._launch()
            if self._goes_on():
                self._launch()
            self._read()
        self._gathered.popleft()
        result = self._results.popleft()
        self._reported += bool(result["finite"])
        return result

    def catch_up(self) -> None:
        """Counts the steps that changed the weights but were not reported.

        After an error, this moves the position to the step of the current weights, for
        a checkpoint. A step with NaN or infinity has changed nothing and is not
        counted; a resumed run repeats its batch.
        """
        with contextlib.suppress(tf.errors.OpError):
            updates = int(self._model.optimizer.iterations.numpy())
            self._trainer.position.step += updates - self._reported
            self._trainer.position.global_step += updates - self._reported
            self._reported = updates
        for one in (self._calls, self._results, self._gathered):
            one.clear()

    def _gather(self, count):
        """Takes batches until there are `count`; returns whether there are so many."""
        while len(self._gathered) < count and self._error is None:
            try:
                self._gathered.append(next(self._batches))
            except StopIteration:
                break
            except Exception as raised:  # noqa: BLE001 - `gathered` raises it
                self._error = raised
        return len(self._gathered) >= count

    def _launch(self):
        """Launches the next call, if there is a batch."""
        ahead = self.unreported
        step = self._trainer.position.global_step + ahead
        whole = self._warm and not self._wanted(range(step + 1, step + self._most))
        whole = whole and self._gather(ahead + self._most)
        count = self._most if whole else 1
        if not self._gather(ahead + count):
            return
        batches = [self._gathered[ahead + i] for i in range(count)]
        proceed = self._calls[-1].proceed if self._calls else None
        try:
            if not self._warm and self._most > 1:
                # Trace the graph in the first step, which time measurements leave out.
                trace = self._trainer.step_function.get_concrete_function
                trace(batches * self._most, self._trainer.proceed)
            call = launch(self._trainer, batches, proceed, self._pool)
        except Exception as error:  # noqa: BLE001 - raised in the turn of its step
            call = Call(count, functools.partial(_raise, error))
        self._calls.append(call)
        self._trainer.heartbeat()

    def _goes_on(self):
        """Returns whether to launch a call before the results of the last are read."""
        return (
            self._warm
            and len(self._calls) == 1
            and self._calls[0].proceed is not None
            and not self._model.stop_training
            and not self._wanted([self._trainer.position.global_step + self.unreported])
        )

    def _read(self):
        """Waits for the results of the first call, and keeps those that are valid."""
        rows = self._calls[0].results()
        self._warm = True
        self._calls.popleft()
        for row in rows:
            self._results.append(row)
            if not row["finite"]:
                self._calls.clear()
                break

    def _wanted(self, steps):
        """Returns whether a callback needs the model after one of the steps."""
        return any(wants(step) for step in steps for wants in self._wants)


def _raise(error):
    raise error


def _looks(callback):
    """Returns whether a callback has hooks before or after single steps."""
    kind, base = type(callback), keras.callbacks.Callback
    return not isinstance(callback, keras.callbacks.ProgbarLogger) and any(
        name in vars(callback) or getattr(kind, name) is not getattr(base, name)
        for name in HOOKS
    )
