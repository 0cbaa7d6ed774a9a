"""Contains the training loop over epochs and steps.

In reading order: `Trainer.fit` loops over the epochs, and `Trainer.run_step` runs a
step, which is in `plsc_tf.training.replica_step`, on all replicas.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
from absl import logging

from plsc_tf.parallel.group import Group, SingleWorker
from plsc_tf.requirements import require
from plsc_tf.training import ending, feed, keras_limits, several_steps, user_data
from plsc_tf.training.circular import Classifier
from plsc_tf.training.forward import Forward
from plsc_tf.training.sentinel import Sentinel
from plsc_tf.training.updates import Updater

# Arguments of `Trainer.fit` that Keras's `fit` does not have.
FIT_OPTIONS = ("initial_step", "stop_at_step", "sentinel")


class Trainer:
    """Trains a `Classifier`; available as `model.trainer`.

    Args:
        model: the `Classifier`.

    Attributes:
        position: the `Position` of the run.
        updater: the `Updater` of all weights; None before `compile`.
        group: the `plsc_tf.parallel.group.Group` of all workers.
        votes: this worker's `plsc_tf.training.ending.Votes`; None in a single process.
            In a cluster, set both before `compile`.
        calls: the `several_steps.Calls` of the `fit` in progress, or None.
        step_batch: the per-replica batch of the current step.
        step_result: `{name: value}` of the last step's loss and metrics.
        step_counts: number of examples in the last step, and the sum of their weights
            if there are weighted metrics.
        stop_requested: True if a worker voted to end the training.
        statistics_differ: True if replicas may have different batch-norm statistics.
        finish_saving: function that waits for a checkpoint that is being written in the
            background, or None.
        heartbeat: function to call during long operations, for the watchdog.
        updater_class: class of `updater`; `ReducedUpdater` of stage 2
            may replace it.
        forward: the `plsc_tf.training.forward.Forward` of the model; None to use
            `Classifier.forward`.
        custom_step: function that takes a per-replica batch, replaces the step and
            returns its results, floats like those of `train_step`; or None.
        step_function: `several_steps.run` as a `tf.function`; None before `compile`.
    """

    def __init__(self, model: Classifier) -> None:
        self.model = model
        self.position = feed.Position()
        self.updater: Updater = None  # type: ignore[assignment]
        self.group: Group | SingleWorker = SingleWorker()
        self.votes: ending.Votes | None = None
        self.calls: several_steps.Calls | None = None
        self.step_batch = None
        self.step_result: dict[str, float] = {}
        self.step_counts: dict[str, float] = {}
        self.stop_requested = self.statistics_differ = False
        self.finish_saving: Callable[[], None] | None = None
        self.heartbeat: Callable[[], None] = lambda: None
        self.updater_class = Updater
        self.forward: Forward | None = None
        self.custom_step: Callable | None = None
        self.step_function: Any = None

    def fit(  # noqa: PLR0913 - Keras's arguments of `fit`
        self,
        data: Any,
        *,
        epochs: int,
        verbose: int | str = 0,
        callbacks: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        initial_step: int = 0,
        stop_at_step: int | None = None,
        sentinel: Sentinel | None = None,
        class_weight: Mapping[int, float] | None = None,
    ) -> keras.callbacks.History:
        """Trains for several epochs of global batches.

        Args:
            data: object with `batch_size`, `steps_per_epoch` and
                `epoch(number, start_step)`.
            epochs: number of the last epoch + 1.
            verbose: as in Keras.
            callbacks: Keras callbacks.
            initial_epoch: number of the first epoch.
            steps_per_epoch: maximum number of steps per epoch.
            initial_step: number of steps of the first epoch that are already done; the
                epoch's means include them if `position.sums` was restored from a
                checkpoint.
            stop_at_step: global step to stop at.
            sentinel: the `training.sentinel.Sentinel`, called when a step produces NaN
                or infinity that the loss scale does not explain; None stops the
                training.
            class_weight: `{label: weight}`, or None.

        Returns:
            `keras.callbacks.History` with each epoch's means over its examples.

        Raises:
            FloatingPointError: a step produced NaN or infinity that the loss scale
                does not explain, and the sentinel is set to stop.
        """
        model, position, logs = self.model, self.position, {}
        steps = steps_per_epoch or data.steps_per_epoch
        users = keras_limits.listed(callbacks)
        given = {"model": model, "epochs": epochs, "steps": steps, "verbose": verbose}
        callbacks = keras.callbacks.CallbackList(
            callbacks, add_history=True, add_progbar=verbose != 0, **given
        )
        limit = steps_per_epoch or stop_at_step
        user_data.check_endless(data, limit, "steps_per_epoch")
        stream = None
        if steps_per_epoch and hasattr(data, "endless"):
            stream = iter(data.endless(initial_epoch * steps_per_epoch + initial_step))
        model.stop_training = False
        position.epoch, position.step = initial_epoch, initial_step
        if not initial_step:
            position.sums = {}
        self.calls = several_steps.Calls(self, callbacks.callbacks)
        try:
            callbacks.on_train_begin()
            if steps is not None and position.step >= steps:
                # The previous run ended after the epoch's last step but before its
                # `on_epoch_end`.
                callbacks.on_epoch_begin(position.epoch)
                logs = position.means(model.weighted_metrics)
                self._end_epoch(callbacks, logs, whole=True)
            self._stop_at(stop_at_step)
            while position.epoch < epochs and not model.stop_training:
                callbacks.on_epoch_begin(position.epoch)
                left = self._steps_left(steps_per_epoch, stop_at_step)
                batches = feed.batches_of_epoch(model, data, stream, class_weight, left)
                batches = self.calls.gathered(batches)
                logs = self._run_epoch(batches, callbacks, sentinel or Sentinel())
                self._stop_at(stop_at_step)
                whole = steps is not None and position.step >= steps
                self._end_epoch(callbacks, logs, whole or not model.stop_training)
            callbacks.on_train_end(logs)
        except BaseException:
            # Keras does not call `on_train_end` in this case.
            self.calls.catch_up()
            for callback in users:
                if hasattr(callback, "on_train_abandoned"):
                    callback.on_train_abandoned()
            raise
        self.step_batch = self.calls = None
        return model.history

    def _run_epoch(self, batches, callbacks, sentinel):
        """Trains on the batches; returns the epoch's means so far."""
        model, position, logs = self.model, self.position, {}
        for batch in batches:
            self.step_batch = batch  # for callbacks that inspect the batch
            callbacks.on_train_batch_begin(position.step)
            result = self._finite_step(batch, sentinel)
            position.step += 1
            if result:
                position.add(result, self.step_counts, model.weighted_metrics)
                logs = position.means(model.weighted_metrics)
            callbacks.on_train_batch_end(position.step - 1, logs)
            if self.stop_requested:
                self.votes.ended = True
                raise ending.EndedElsewhereError("Another worker was asked to end.")
            if model.stop_training and not self.calls.unreported:
                break
        require(position.step, f"Epoch {position.epoch} has no examples")
        return logs

    def _finite_step(self, batch, sentinel):
        """Runs a step; returns its results, or `{}` if nothing was updated."""
        result, scaled = self._counted(self.calls.outcome()), self.model.loss_scale
        if result.pop("finite", True):
            return result
        if scaled is not None and scaled.explains_skip():
            logging.info(
                f"The step after step {self.position.global_step} is not finite and "
                f"was skipped; the loss scale is {float(scaled.value()):g} now."
            )
        else:
            sentinel.handle(self.model, batch)
        # The batch counts as consumed although it did not change the weights.
        self.position.global_step += 1
        self.step_result = {}
        return {}

    def run_step(self, batch: Any) -> dict[str, float]:
        """Runs one step on a per-replica batch, padded by `batching.pad`.

        Returns:
            dict of floats as returned by `Classifier.train_on_batch`, with
            `"finite": False` if the step produced NaN or infinity and was not applied.
        """
        (result,) = several_steps.launch(self, [batch]).results()
        return self._counted(result)

    def _counted(self, result):
        """Takes the counts and votes out of a step's result, and counts the step."""
        self.statistics_differ = True
        counts = {name: result.pop(name) for name in feed.COUNTS if name in result}
        self.stop_requested = bool(result.pop("stop", False))
        if self.votes is not None:
            self.votes.check_abort(bool(result.pop("aborted")))
        if not result.pop("finite"):
            return {**result, "finite": False}
        self.position.global_step += 1
        self.step_counts, self.step_result = counts, result
        return dict(result)

    @functools.cached_property
    def proceed(self) -> Any:
        """Flag of a step whose earlier results are known, made once for all steps."""
        return several_steps.always(self.model.strategy)

    @property
    def batch_parts(self) -> int:
        """Returns how many parts a global batch has: replicas × accumulation steps."""
        model = self.model
        return model.strategy.num_replicas_in_sync * model.accumulation_steps

    def averaged(self) -> contextlib.AbstractContextManager:
        """Returns a context in which the model uses its averaged weights, if any."""
        if self.updater is None or self.updater.averages is None:
            return contextlib.nullcontext()
        self.start_averages()
        return self.updater.averages.in_use()

    def check_compiled(self) -> None:
        """Raises ValueError if `compile` has not been called."""
        rule = "Call model.compile(optimizer=...) first, inside strategy.scope()"
        require(self.updater is not None, rule)

    def start_averages(self) -> None:
        """Initializes the averages from the weights unless they are already started."""
        averages = self.updater.averages
        if averages is not None and not averages.started:
            averages.start(int(self.model.optimizer.iterations.numpy()))

    def _steps_left(self, steps_per_epoch, stop_at_step):
        """Returns how many steps the limits leave in the epoch; None without limits."""
        limits = [(steps_per_epoch, self.position.step)]
        limits += [(stop_at_step, self.position.global_step)]
        return min((max(0, most - done) for most, done in limits if most), default=None)

    def _end_epoch(self, callbacks, logs, whole):
        """Calls `on_epoch_end`, after moving to the next epoch if this one is done."""
        finished = self.position.epoch
        if whole:
            self.position.epoch, self.position.step = finished + 1, 0
            self.position.sums = {}
        callbacks.on_epoch_end(finished, logs)

    def _stop_at(self, step):
        if step and self.position.global_step >= step:
            self.model.stop_training = True
