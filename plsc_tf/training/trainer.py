"""Contains the training loop over epochs and steps, and the step of one replica.

In reading order: `Trainer.fit` loops over the epochs, `Trainer.run_step` runs a step on
all replicas, and `train_step` is the part of the step that each replica runs.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.heads.second_pass import concatenate_parts
from plsc_tf.parallel import collectives
from plsc_tf.parallel.group import Group, SingleWorker
from plsc_tf.training import (
    diagnosis,
    feed,
    keras_limits,
    mixing,
    several_steps,
    user_data,
)
from plsc_tf.training.circular import Classifier
from plsc_tf.training.ending import EndedElsewhereError, Votes
from plsc_tf.training.feed import COUNTS, Position
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
        updater_class: class of `updater`; a stage (`plsc_tf.jobs.stage`) may replace
            it.
        forward: the `plsc_tf.training.forward.Forward` of the model; None to use
            `Classifier.forward`.
        custom_step: function that takes a per-replica batch and replaces the step, or
            None.
        step_function: `several_steps.run` as a `tf.function`; None before `compile`.
    """

    def __init__(self, model: Classifier) -> None:
        self.model = model
        self.position = Position()
        self.updater: Updater = None  # type: ignore[assignment]
        self.group: Group | SingleWorker = SingleWorker()
        self.votes: Votes | None = None
        self.calls: several_steps.Calls | None = None
        self.step_batch = None
        self.step_result: dict[str, float] = {}
        self.step_counts: dict[str, float] = {}
        self.stop_requested = False
        self.statistics_differ = False
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
            sentinel: a `training.sentinel.Sentinel`, called when a step produces NaN or
                infinity that the loss scale does not explain.
            class_weight: `{label: weight}`, or None.

        Returns:
            `keras.callbacks.History` with each epoch's means over its examples.

        Raises:
            FloatingPointError: a step produced NaN or infinity that the loss scale
                does not explain, and there is no sentinel or it is set to stop.
        """
        model, position, logs = self.model, self.position, {}
        steps = steps_per_epoch or data.steps_per_epoch
        users = keras_limits.listed(callbacks)
        callbacks = keras.callbacks.CallbackList(
            callbacks,
            add_history=True,
            add_progbar=verbose != 0,
            model=model,
            epochs=epochs,
            steps=steps,
            verbose=verbose,
        )
        limit = steps_per_epoch or stop_at_step
        user_data.check_endless(data, limit, "steps_per_epoch")
        passes = None
        if steps_per_epoch and getattr(data, "one_pass", False):
            passes = feed.passes(data, initial_epoch * steps_per_epoch + initial_step)
        model.stop_training = False
        position.epoch, position.step = initial_epoch, initial_step
        if not initial_step:
            position.sums = {}
        self.calls = several_steps.Calls(self, callbacks.callbacks)
        with self._abandoned(users):
            callbacks.on_train_begin()
            if steps is not None and position.step >= steps:
                # The previous run ended after the epoch's last step but before its
                # `on_epoch_end`.
                logs = position.means(model.weighted_metrics)
                self._end_epoch(callbacks, logs, whole=True)
            self._stop_at(stop_at_step)
            while position.epoch < epochs and not model.stop_training:
                callbacks.on_epoch_begin(position.epoch)
                count = self._steps_left(steps_per_epoch, stop_at_step)
                batches = feed.batches_of_epoch(
                    model, data, passes, class_weight, count
                )
                batches = self.calls.gathered(batches)
                logs = self._run_epoch(batches, callbacks, sentinel)
                self._stop_at(stop_at_step)
                whole = steps is not None and position.step >= steps
                self._end_epoch(callbacks, logs, whole or not model.stop_training)
            callbacks.on_train_end(logs)
        self.step_batch = self.calls = None
        return model.history

    @contextlib.contextmanager
    def _abandoned(self, callbacks):
        """Calls the callbacks' `on_train_abandoned` if training raises an exception.

        Keras does not call `on_train_end` in this case.
        """
        try:
            yield
        except BaseException:
            self.calls.catch_up()
            for callback in callbacks:
                if hasattr(callback, "on_train_abandoned"):
                    callback.on_train_abandoned()
            raise

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
                raise EndedElsewhereError("Another worker was asked to end.")
            if model.stop_training and not self.calls.unreported:
                break
        if not position.step:
            raise ValueError(f"Epoch {position.epoch} has no examples.")
        return logs

    def _finite_step(self, batch, sentinel):
        """Runs a step; returns its results, or `{}` if nothing was updated."""
        result, scaled = self.run_step(batch), self.model.loss_scale
        if result.pop("finite", True):
            return result
        if scaled is not None and scaled.explains_skip():
            logging.info(
                "The step after step %d is not finite with loss scale %g and was "
                "skipped; the scale is %g now.",
                self.position.global_step,
                scaled.last_value(),
                scaled.value(),
            )
        elif sentinel is not None:
            sentinel.handle(self.model, batch)
        else:
            raise diagnosis.error(self.model, batch)
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
        self.start_averages()
        result = None if self.calls is None else self.calls.outcome(batch)
        if result is None:
            (result,) = several_steps.launch(self, [batch]).results()
        self.statistics_differ = True
        counts = {name: result.pop(name) for name in COUNTS if name in result}
        self.stop_requested = bool(result.pop("stop", False))
        if self.votes is not None:
            self.votes.check_abort(bool(result.pop("aborted")))
        if not result.pop("finite"):
            return {**result, "finite": False}
        self.position.global_step += 1
        self.step_counts = counts
        self.step_result = result
        return dict(result)

    def distributed_step(self, batch: Any) -> dict[str, tf.Tensor]:
        """Runs a step on all replicas; `batch` is padded and per-replica."""
        step = functools.partial(train_step, self.model)
        return self.model.strategy.run(step, args=batch)

    def gradients(self, *batch: tf.Tensor) -> "StepGradients":
        """Runs a step's forward and backward pass only; call it in replica context."""
        return gradients(self.model, *batch)

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
        if self.updater is None:
            raise ValueError(
                "Call model.compile(optimizer=...) first, inside strategy.scope()."
            )

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


def train_step(
    model: Classifier,
    images: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    real: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Runs the forward and backward pass, and updates all weights or none.

    The objective is Σ weight · loss over the global batch, divided by its number of
    examples as in Keras, plus penalties and auxiliary losses. It does not depend on how
    the batch is split among replicas and into parts.

    Args:
        model, images, labels, weights, real: see `gradients`.

    Returns:
        dict of scalars, equal on every replica: `loss`, the requested metrics,
        `examples` (number of examples), `weights` (sum of their weights, if there are
        weighted metrics), `finite` (whether the update was applied), and the outcome
        of the workers' votes in a cluster.
    """
    passes = gradients(model, images, labels, weights, real)
    return finish(model, passes, *update(model, passes))


@dataclasses.dataclass
class StepGradients:
    """Results of one replica's forward and backward pass.

    Attributes:
        gradients: the replica's share of each replicated weight's gradient, times the
            loss scale; None for a weight that the loss does not depend on.
        pending: the head's `plsc_tf.heads.base.HeadStep.pending`; None for a
            replicated head.
        healthy: bool scalar, True if the loss and the embedding gradients are finite.
        loss: scalar, the replica's share of the objective.
        examples: scalar, number of examples in the global batch.
        sample_weights: `[b]` factor of each example's loss in the objective.
        real: `[b]` factor of each example in an unweighted mean.
        ranks: int64 `[b]`, number of classes that score above the true one, or None.
        state: the loss function's state.
        statistics: batch-norm statistics before the pass.
        random: random states before the pass.
    """

    gradients: list
    pending: dict | None
    healthy: tf.Tensor
    loss: tf.Tensor
    examples: tf.Tensor
    sample_weights: tf.Tensor
    real: tf.Tensor
    ranks: tf.Tensor | None
    state: dict | None
    statistics: list
    random: list


def gradients(
    model: Classifier,
    images: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    real: tf.Tensor | None = None,
    backward: bool = True,
) -> StepGradients:
    """Runs the forward pass, and the backward pass if `backward`.

    Args:
        model: the compiled `Classifier`.
        images: this replica's images `[b, h, w, 3]`, in 0 … 255.
        labels: int64 `[b]` in [0, num_classes).
        weights: float32 `[b]`, 0 for padding.
        real: float32 `[b]`, 1 for examples and 0 for padding; None if `weights` are
            exactly that.
        backward: whether to run the backward pass.
    """
    states = _states(model) if backward else ([], [])
    statistics, random = (
        [tf.convert_to_tensor(value) for value in values] for values in states
    )
    head, count = model.head, model.accumulation_steps
    step = tf.convert_to_tensor(model.optimizer.iterations)
    share = None
    if model.mixing is not None:
        images, labels, share = model.mixing(images, labels, weights, step)
    weights = tf.cast(weights, keras.config.floatx())
    real = weights if real is None else tf.cast(real, weights.dtype)
    total, chosen = _examples(head, real, tf.reshape(labels, [-1]), step)
    sample_weights, real = weights / total, real / total
    gradients: list = []
    state: dict | None = None
    before_next: list = []
    outcomes, extra_losses = [], []
    penalty = tf.zeros([], sample_weights.dtype)
    for part in _parts((images, labels, sample_weights), count):
        # Run the parts one after the other: in parallel, the activations of all parts
        # would be in memory at once.
        with tf.control_dependencies(before_next):
            outcome, part_gradients, penalty, extra = _part(
                model, part, share, backward, step=step, chosen=chosen, state=state
            )
        gradients = _sum(gradients, part_gradients)
        before_next = [g for g in gradients if g is not None] or [outcome.losses]
        state = outcome.state
        outcomes.append(outcome)
        extra_losses.append(extra)
    losses = tf.concat([outcome.losses for outcome in outcomes], axis=0)
    own_loss = (
        tf.reduce_sum(sample_weights * losses) + penalty / collectives.num_replicas()
    )
    if model.auxiliary is not None:
        own_loss += tf.add_n(extra_losses)
    healthy = tf.math.is_finite(own_loss)
    for outcome in outcomes if backward else ():
        # NaN or infinity from any shard shows up in the embedding gradients, before
        # any weight gradient is computed.
        finite = tf.math.is_finite(outcome.embedding_gradients)
        healthy &= tf.reduce_all(finite)
    ranks = None
    if model.ranked_metrics and backward:
        ranks = tf.concat([outcome.ranks for outcome in outcomes], axis=0)
    sharded = head.sharded and backward
    return StepGradients(
        gradients=gradients,
        pending=concatenate_parts([o.pending for o in outcomes]) if sharded else None,
        healthy=healthy,
        loss=own_loss,
        examples=total,
        sample_weights=sample_weights,
        real=real,
        ranks=ranks,
        state=state,
        statistics=statistics,
        random=random,
    )


def update(model: Classifier, passes: Any) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Updates all weights or none, see `Updater.apply`.

    Args:
        model: the compiled `Classifier`.
        passes: the `StepGradients`.

    Returns:
        (bool scalar, True if the update was applied; sums over the global batch, and
        the outcome of the workers' votes in a cluster).
    """
    figures = {"loss": passes.loss}
    for name, k in model.ranked_metrics.items():
        weighted = name in model.weighted_metrics
        share = passes.sample_weights if weighted else passes.real
        figures[name] = tf.reduce_sum(share * tf.cast(passes.ranks < k, share.dtype))
    if model.weighted_metrics:
        figures["weights"] = tf.reduce_sum(passes.sample_weights)
    # The forward pass of a bad batch has already changed the batch-norm statistics.
    undo = _states(model)[0], passes.statistics
    return model.trainer.updater.apply(
        passes.gradients, passes.pending, passes.healthy, undo, figures
    )


def finish(
    model: Classifier, passes: Any, finite: tf.Tensor, sums: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Keeps or reverts further state changes of the passes and returns the results.

    Args:
        model: the compiled `Classifier`.
        passes: the `StepGradients`.
        finite: bool scalar, True if the update was applied.
        sums: the sums and votes that `update` returned.

    Returns:
        dict of scalars, see `train_step`.
    """
    if "aborted" in sums:
        for value, old in zip(_states(model)[1], passes.random, strict=True):
            value.assign(tf.where(sums["aborted"], old, value))
    model.head.keep_state(passes.state, finite)
    result = {**sums, "examples": passes.examples, "finite": finite}
    for name in model.weighted_metrics:
        result[name] = tf.math.divide_no_nan(sums[name], sums["weights"])
    if model.weighted_metrics:
        result["weights"] = sums["weights"] * passes.examples
    return result


def _examples(head, real, labels, step):
    """Counts the examples of the global batch, and samples the classes of the step.

    Returns:
        (number of examples; the rows that `Head.sample` returns, or None for all). One
        collective sends the counts and the labels to sample by.
    """
    own = tf.reduce_sum(real)
    if head.sample_rate == 1:
        return tf.maximum(collectives.all_sum(own), 1e-12), None
    gathered, counts = collectives.all_gather([labels, tf.fill(labels.shape, own)])
    total = tf.reduce_sum(tf.reshape(counts, [-1, *labels.shape])[:, 0])
    return tf.maximum(total, 1e-12), head.sample(gathered, step)


def _states(model):
    """Returns the state that a forward pass changes: (statistics, random states)."""
    states = [v.value for v in model.untrained_variables()]
    statistics = [value for value in states if value.dtype.is_floating]
    random = [value for value in states if not value.dtype.is_floating]
    return statistics, random


def _parts(values, count):
    """Splits tensors into parts, with operations that have GPU kernels for any type."""
    size = values[0].shape[0] // count
    starts = range(0, count * size, size) if count > 1 else ()
    return [[v[i : i + size] for v in values] for i in starts] or [values]


def _part(model, part, share, backward, **of_head):
    """Runs the forward and backward pass on a part of the replica's batch.

    Args:
        part: (images, labels, sample_weights); labels are `[b, 2]` if `share` is set.
        share: share of the first label, from `Mixing`, or None.
        backward: whether to run the backward pass.
        of_head: step, chosen and state, passed to the head.

    Returns:
        (`HeadStep`, gradients of the replicated weights times the loss scale, sum of
        the layers' penalties, loss of the auxiliary logits or None).
    """
    images, labels, sample_weights = part
    dtype = keras.config.floatx()
    forward = model.trainer.forward or model.forward
    with tf.GradientTape() as tape:
        embeddings, penalties, extra = forward(images, labels, sample_weights)
    penalty = tf.add_n([tf.zeros([], dtype), *penalties])
    of_head["with_ranks"] = bool(model.ranked_metrics) and backward
    batch = tf.cast(embeddings, dtype), labels, sample_weights
    if not backward:
        outcome = model.head.loss_and_gradients(*batch, **of_head, gradients=False)
        return outcome, [], penalty, extra
    if share is None:
        outcome = model.head.loss_and_gradients(*batch, **of_head)
    else:
        outcome = mixing.of_both_labels(model.head, *batch, share, of_head)
    scale = tf.ones([], dtype)
    if model.loss_scale is not None:
        scale = tf.cast(model.loss_scale.value(), dtype)
    # Penalties are the same on every replica and in every part, so each part
    # contributes an equal share of their sum.
    share = scale / (collectives.num_replicas() * model.accumulation_steps)
    extras = [] if extra is None else [extra]
    gradients = tape.gradient(
        [embeddings, *extras, *penalties],
        model.trained_network_variables(),
        output_gradients=[
            tf.cast(scale * outcome.embedding_gradients, embeddings.dtype),
            *(scale for _ in extras),
            *(share for _ in penalties),
        ],
    )
    if not model.head.sharded:
        of_head = model.head.second_pass.whole_gradients(outcome.pending)
        gradients += [scale * gradient for gradient in of_head]
    return outcome, gradients, penalty, extra


def _sum(first, second):
    if not first:
        return second
    return [a if b is None else a + b for a, b in zip(first, second, strict=True)]
