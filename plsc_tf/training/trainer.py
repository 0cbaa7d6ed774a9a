"""A run: its loop over epochs and steps, and the step of one replica.

In reading order: `Trainer.fit` goes through the epochs, `Trainer.run_step` makes a step
on all replicas, and `train_step` is what each replica does in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.heads.second_pass import join
from plsc_tf.parallel import collectives
from plsc_tf.parallel.group import SingleWorker
from plsc_tf.training import (
    diagnosis,
    feed,
    keras_limits,
    mixing,
    several_steps,
    user_data,
)
from plsc_tf.training.ending import EndedElsewhereError
from plsc_tf.training.feed import COUNTS, Position
from plsc_tf.training.updates import Updater
from plsc_tf.training.weight_rules import COMMON

if TYPE_CHECKING:
    from plsc_tf.parallel.group import Group
    from plsc_tf.training.classifier import Classifier
    from plsc_tf.training.ending import Votes
    from plsc_tf.training.sentinel import Sentinel
    from plsc_tf.training.weight_rules import WeightRule

# Arguments of `Trainer.fit` that Keras does not have.
FIT_OPTIONS = ("initial_step", "stop_at_step", "sentinel")


class Trainer:
    """Runs the training of a `Classifier`, which has it as `model.trainer`.

    Args:
        model: the `Classifier`.

    Attributes:
        position: the `Position` of the run.
        updater: the `Updater` of all weights; None before `compile`.
        group: the `plsc_tf.parallel.group.Group` of all workers.
        votes: the `plsc_tf.training.ending.Votes` of a cluster; None of one process.
        calls: the `several_steps.Calls` of the running `fit`; None with single steps.
        step_batch: the per-replica batch of the running step.
        step_result: the figures of the last step, by name.
        step_counts: its examples, and their weights where there are weighted metrics.
        stop_voted: whether another worker was asked to end the training.
        statistics_differ: whether replicas have different batch-norm statistics.
        finish_saving: function that waits for a checkpoint in the background, or None.
        heartbeat: function to call during long work, for the watchdog.
        updater_class: class of the updater; a stage (`plsc_tf.jobs.stage`) may replace
            it.
        custom_step: function of a per-replica batch that replaces the step, or None.
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
        self.stop_voted = False
        self.statistics_differ = False
        self.finish_saving: Callable[[], None] | None = None
        self.heartbeat: Callable[[], None] = _unwatched
        self.updater_class = Updater
        self.custom_step: Callable | None = None

    def join(self, group: Group, votes: Votes | None) -> None:
        """Makes this the training of one worker of a cluster, before `compile`.

        Args:
            group: the `plsc_tf.parallel.group.Group` of all workers.
            votes: the `plsc_tf.training.ending.Votes`; None of a process alone.
        """
        self.group = group
        self.votes = votes

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer,
        *,
        head_rule: WeightRule | None,
        layer_rules: Mapping[int, WeightRule],
        **options,
    ) -> None:
        """Makes the updater of all weights, and the functions of a step.

        Args:
            optimizer: the Keras optimizer.
            head_rule: the head's `WeightRule`, or None.
            layer_rules: those of layers, `{id of a keras.Variable: WeightRule}`.
            **options: of the `Updater`.
        """
        model, head = self.model, self.model.head
        head_weights = [] if head.sharded else head.variables_replicated
        of_head = dict.fromkeys(map(id, head_weights), head_rule or COMMON)
        self.updater = self.updater_class(
            optimizer,
            model.strategy,
            [*model.trained_network_variables(), *head_weights],
            head if head.sharded else None,
            votes=self.votes,
            head_rule=head_rule,
            layer_rules={**layer_rules, **of_head},
            **options,
        )
        # AutoGraph would take seconds to convert all that is called.
        self.step_function = tf.function(self.distributed_step, autograph=False)
        run = functools.partial(several_steps.run, self)
        self.several_steps_function = tf.function(run, autograph=False)

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
    ) -> keras.callbacks.History:
        """Runs steps over epochs of global batches.

        Args:
            data: has `batch_size`, `steps_per_epoch` and `epoch(number, start_step)`.
            epochs: number of the last epoch + 1.
            verbose: as in Keras.
            callbacks: Keras callbacks.
            initial_epoch: number of the first epoch.
            steps_per_epoch: cuts epochs to this many steps.
            initial_step: steps of the first epoch that are done already; what a
                checkpoint knows of them counts for the epoch's means.
            stop_at_step: global step to stop at.
            sentinel: a `training.sentinel.Sentinel`, called when a step is not finite.

        Returns:
            `keras.callbacks.History`; its epochs hold means over the epoch's examples.

        Raises:
            FloatingPointError: a step was not finite, no loss scale explains it, and
                there is no sentinel or it says stop.
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
            passes = feed.Passes(model, data, steps_per_epoch)
        model.stop_training = False
        position.epoch, position.step = initial_epoch, initial_step
        if not initial_step:
            position.sums = {}
        self.calls = several_steps.calls_of(self, callbacks.callbacks)
        with self._abandoned(users):
            callbacks.on_train_begin()
            if steps is not None and position.step >= steps:
                # The run before ended between the epoch's last step and its end.
                logs = position.means(model.weighted_metrics)
                self._end_epoch(callbacks, logs, whole=True)
            self._stop_at(stop_at_step)
            while position.epoch < epochs and not model.stop_training:
                callbacks.on_epoch_begin(position.epoch)
                batches = feed.batches_of_epoch(model, data, passes)
                batches = self._batches_left(batches, steps_per_epoch, stop_at_step)
                if self.calls is not None:
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
        """Ends a training that fails for callbacks with `on_train_abandoned`.

        Keras calls no `on_train_end` then.
        """
        try:
            yield
        except BaseException:
            if self.calls is not None:
                self.calls.catch_up()
            for callback in callbacks:
                if hasattr(callback, "on_train_abandoned"):
                    callback.on_train_abandoned()
            raise

    def _run_epoch(self, batches, callbacks, sentinel):
        """Trains on the batches; returns the means over their examples."""
        model, position, logs = self.model, self.position, {}
        for batch in batches:
            self.step_batch = batch  # for callbacks that look at what is fed
            callbacks.on_train_batch_begin(position.step)
            result = self._finite_step(batch, sentinel)
            position.step += 1
            if result:
                position.add(result, self.step_counts, model.weighted_metrics)
                logs = position.means(model.weighted_metrics)
            callbacks.on_train_batch_end(position.step - 1, logs)
            if self.stop_voted:
                self.votes.ended = True
                raise EndedElsewhereError("Another worker was asked to end.")
            if model.stop_training and not (self.calls and self.calls.unreported):
                break
        if not position.step:
            raise ValueError(f"Epoch {position.epoch} is empty: it has no example.")
        return logs

    def _finite_step(self, batch, sentinel):
        """Runs a step; returns its results, none of them where nothing was updated."""
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
        # The batch has been used up, although it left no trace.
        self.position.global_step += 1
        self.step_result = {}
        return {}

    def run_step(self, batch: Any) -> dict[str, float]:
        """One step on a per-replica batch of `batching.pad`; see `train_on_batch`.

        Returns:
            what `train_on_batch` does; `"finite": False` for any step that was not
            finite and has changed nothing.
        """
        self.start_averages()
        result = None if self.calls is None else self.calls.outcome(batch)
        if result is None:
            outcome = (self.custom_step or self.step_function)(batch)
            local = self.model.strategy.experimental_local_results
            result = {name: float(local(value)[0]) for name, value in outcome.items()}
        self.statistics_differ = True
        counts = {name: result.pop(name) for name in COUNTS if name in result}
        self.stop_voted = bool(result.pop("stop", False))
        if self.votes is not None:
            self.votes.check_abort(bool(result.pop("aborted")))
        if not result.pop("finite"):
            return {**result, "finite": False}
        self.position.global_step += 1
        self.step_counts = counts
        self.step_result = result
        return dict(result)

    def distributed_step(self, batch: Any) -> dict[str, tf.Tensor]:
        """The step of all replicas, on a per-replica batch of `batching.pad`."""
        step = functools.partial(train_step, self.model)
        return self.model.strategy.run(step, args=batch)

    def gradients(self, *batch: tf.Tensor) -> Passes:
        """The passes of a step, without its update; called in replica context."""
        return gradients(self.model, *batch)

    @property
    def batch_parts(self) -> int:
        """Number of parts of a global batch: replicas times accumulation steps."""
        model = self.model
        return model.strategy.num_replicas_in_sync * model.accumulation_steps

    def averaged(self) -> contextlib.AbstractContextManager:
        """A context in which the model has the averages of its weights, if any."""
        if self.updater is None or self.updater.averages is None:
            return contextlib.nullcontext()
        self.start_averages()
        return self.updater.averages.in_use()

    def check_compiled(self) -> None:
        """Raises ValueError before `compile`."""
        if self.updater is None:
            raise ValueError(
                "Call model.compile(optimizer=...) first, inside strategy.scope()."
            )

    def start_averages(self) -> None:
        """Starts the averages of the weights at the weights, unless they run."""
        averages = self.updater.averages
        if averages is not None and not averages.started:
            averages.start(int(self.model.optimizer.iterations.numpy()))

    def _batches_left(self, batches, steps_per_epoch, stop_at_step):
        """Yields those of an epoch's batches that are left at the position."""
        # Not the position itself: batches may be taken some steps ahead.
        step, global_step = self.position.step, self.position.global_step
        # A batch that is not trained on must not be taken: the next epoch wants it.
        while not (steps_per_epoch and step >= steps_per_epoch) and not (
            stop_at_step and global_step >= stop_at_step
        ):
            batch = next(batches, None)
            if batch is None:
                return
            yield batch
            step, global_step = step + 1, global_step + 1

    def _end_epoch(self, callbacks, logs, whole):
        """Tells the callbacks, from whom on the next epoch counts if this is whole."""
        finished = self.position.epoch
        if whole:
            self.position.epoch, self.position.step = finished + 1, 0
            self.position.sums = {}
        callbacks.on_epoch_end(finished, logs)

    def _stop_at(self, step):
        if step and self.position.global_step >= step:
            self.model.stop_training = True


def _unwatched():
    """The `heartbeat` without a `Watchdog`."""


def train_step(
    model: Classifier,
    images: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    real: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Forward, backward, and the update of everything or nothing.

    The objective is Σ weight · loss / number of examples over the global batch, as in
    Keras, however it is cut into replicas and parts.

    Args:
        model: the compiled `Classifier`.
        images: `[b, h, w, 3]` of this replica, in 0 … 255.
        labels: int64 `[b]` in [0, num_classes).
        weights: float32 `[b]`, 0 for padding.
        real: float32 `[b]`, 1 and for padding 0; None: the weights are just that.

    Returns:
        dict of scalars, equal on every replica: `loss`, the requested metrics,
        `examples`, their number, `weights`, their sum, where there are weighted
        metrics, `finite`, whether the update was applied, and what the workers of a
        cluster have voted.
    """
    passes = gradients(model, images, labels, weights, real)
    finite, votes = model.trainer.updater.apply(
        passes.gradients, passes.pending, passes.healthy
    )
    return finish(model, passes, finite, votes)


@dataclasses.dataclass
class Passes:
    """What the forward and backward pass of one replica gave.

    Attributes:
        gradients: the replica's share, one per replicated weight, None where a weight
            has no part in the loss; times the loss scale.
        pending: of the head's step, see `plsc_tf.heads.base.HeadStep`; None of a
            replicated head.
        healthy: bool scalar, whether losses and embeddings' gradients are finite.
        loss: scalar, the replica's share of the objective.
        examples: scalar, number of examples of the global batch.
        upstream: `[b]` share of each example in the objective.
        real: `[b]` share of each example in an unweighted mean.
        ranks: int32 `[b]` of the true classes, or None.
        state: of the loss.
        statistics: batch-norm statistics as they were before.
        random: random states as they were before.
    """

    gradients: list
    pending: dict | None
    healthy: tf.Tensor
    loss: tf.Tensor
    examples: tf.Tensor
    upstream: tf.Tensor
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
) -> Passes:
    """Forward and backward pass, or the losses alone; args as of `train_step`."""
    upstream, real, total = shares(weights, real)
    statistics, random = _states(model) if backward else ([], [])
    before = [tf.identity(value) for value in statistics]
    before_random = [tf.identity(value) for value in random]
    head, count = model.head, model.accumulation_steps
    step = tf.convert_to_tensor(model.optimizer.iterations)
    share = None
    if model.mixing is not None:
        images, labels, share = model.mixing(images, labels, weights, step)
    chosen = head.sample(tf.reshape(labels, [-1]), step)
    gradients: list = []
    state: dict | None = None
    before_next: list = []
    outcomes, extra_losses = [], []
    penalty = tf.zeros([], upstream.dtype)
    parts = (tf.split(value, count) for value in (images, labels, upstream))
    for part in zip(*parts, strict=True):
        # One part after the other: together they would need all activations at once.
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
    own_loss = tf.reduce_sum(upstream * losses) + penalty / collectives.num_replicas()
    if model.auxiliary is not None:
        own_loss += tf.add_n(extra_losses)
    healthy = tf.math.is_finite(own_loss)
    for outcome in outcomes if backward else ():
        # What is not finite in a shard shows here, before any weight's gradient.
        bad = tf.math.is_finite(outcome.embedding_gradients)
        healthy &= tf.reduce_all(bad)
    ranks = None
    if model.ranked_metrics and backward:
        ranks = tf.concat([outcome.ranks for outcome in outcomes], axis=0)
    sharded = head.sharded and backward
    return Passes(
        gradients=gradients,
        pending=join([o.pending for o in outcomes]) if sharded else None,
        healthy=healthy,
        loss=own_loss,
        examples=total,
        upstream=upstream,
        real=real,
        ranks=ranks,
        state=state,
        statistics=before,
        random=before_random,
    )


def finish(
    model: Classifier, passes: Any, finite: tf.Tensor, votes: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Keeps what the passes have changed, or takes it back; returns the results.

    Args:
        model: the compiled `Classifier`.
        passes: the `Passes`.
        finite: bool scalar, whether the update was applied.
        votes: what the workers of a cluster have voted.

    Returns:
        see `train_step`.
    """
    statistics, random = _states(model)
    # The forward pass of a bad batch has moved the batch-norm statistics already.
    for value, old in zip(statistics, passes.statistics, strict=True):
        value.assign(tf.where(finite, value, old))
    if votes:
        for value, old in zip(random, passes.random, strict=True):
            value.assign(tf.where(votes["aborted"], old, value))
    model.head.keep_state(passes.state, finite)
    result = {
        "loss": collectives.all_sum(passes.loss),
        "examples": passes.examples,
        "finite": finite,
        **votes,
    }
    for name, k in model.ranked_metrics.items():
        weighted = name in model.weighted_metrics
        share = passes.upstream if weighted else passes.real
        correct = tf.cast(passes.ranks < k, share.dtype)
        result[name] = collectives.all_sum(tf.reduce_sum(share * correct))
    if model.weighted_metrics:
        total = collectives.all_sum(tf.reduce_sum(passes.upstream))
        for name in model.weighted_metrics:
            result[name] = tf.math.divide_no_nan(result[name], total)
        result["weights"] = total * passes.examples
    return result


def shares(
    weights: tf.Tensor, real: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Shares of a replica's examples; args as of `train_step`.

    Returns:
        (each example's share in the objective `[b]`, in an unweighted mean `[b]`,
        number of examples of the global batch).
    """
    weights = tf.cast(weights, keras.config.floatx())
    real = weights if real is None else tf.cast(real, weights.dtype)
    total = tf.maximum(collectives.all_sum(tf.reduce_sum(real)), 1e-12)
    share = real / total
    return (share if real is weights else weights / total), share, total


def _states(model):
    """What a forward pass changes: (batch-norm statistics, random states)."""
    states = [v.value for v in model.untrained_variables()]
    statistics = [value for value in states if value.dtype.is_floating]
    random = [value for value in states if not value.dtype.is_floating]
    return statistics, random


def _part(model, part, share, backward, **of_head):
    """Forward and backward pass of a part of the replica's batch.

    Args:
        part: (images, labels, upstream); labels are `[b, 2]` with `share`.
        share: of the first label, of `Mixing`, or None.
        backward: whether there is a backward pass.
        of_head: step, chosen and state.

    Returns:
        (`HeadStep`, gradients of the replicated weights times the loss scale, sum of
        the penalties of a user's layers, loss of the auxiliary logits or None).
    """
    images, labels, upstream = part
    dtype = keras.config.floatx()
    with tf.GradientTape() as tape:
        embeddings, penalties, extra = model.forward(images, labels, upstream)
    penalty = tf.add_n([tf.zeros([], dtype), *penalties])
    of_head["with_ranks"] = bool(model.ranked_metrics) and backward
    batch = tf.cast(embeddings, dtype), labels, upstream
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
    # Penalties are the same on every replica and for every part, and are summed.
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
        of_head = model.head.weight_gradients(outcome.pending)
        gradients += [scale * gradient for gradient in of_head]
    return outcome, gradients, penalty, extra


def _sum(first, second):
    if not first:
        return second
    return [a if b is None else a + b for a, b in zip(first, second, strict=True)]
