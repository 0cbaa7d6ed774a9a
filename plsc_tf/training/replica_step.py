"""Contains the step of one replica: forward pass, backward pass and update.

In reading order: `train_step` is the whole step, `gradients` runs both passes, `update`
changes the weights, and `finish` keeps or reverts all other state.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from plsc_tf.heads.second_pass import concatenate_parts
from plsc_tf.parallel import collectives
from plsc_tf.training import mixing
from plsc_tf.training.circular import Classifier


def train_step(
    model: Classifier, proceed: tf.Tensor, *batch: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Runs the forward and backward pass, and updates all weights or none.

    The objective is Σ weight · loss over the global batch, divided by its number of
    examples as in Keras, plus penalties and auxiliary losses. It does not depend on how
    the batch is split among replicas and into parts.

    Args:
        model, *batch: the first arguments of `gradients`.
        proceed: bool scalar, see `Updater.apply`.

    Returns:
        dict of scalars, equal on every replica: `loss`, the requested metrics,
        `examples` (number of examples), `weights` (sum of their weights, if there are
        weighted metrics), `finite` (whether the update was applied), and the outcome
        of the workers' votes in a cluster.
    """
    passes = gradients(model, *batch)
    return finish(model, passes, *update(model, passes, proceed))


class StepGradients(NamedTuple):
    """Results of one replica's forward and backward pass.

    This is a tuple so that a `tf.function` can accept and return it.

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
        distillation: scalar, the part of `loss` that a teacher adds, or None.
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
    distillation: tf.Tensor | None
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
    statistics, random = (list(map(tf.convert_to_tensor, group)) for group in states)
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
    outcomes, extra_losses, extras = [], [], {}
    penalty = tf.zeros([], sample_weights.dtype)
    for part in _parts((images, labels, sample_weights), count):
        # Run the parts one after the other: in parallel, the activations of all parts
        # would be in memory at once.
        with tf.control_dependencies(before_next):
            outcome, part_gradients, penalty, extras = _part(
                model, part, share, backward, step=step, chosen=chosen, state=state
            )
        gradients = _sum(gradients, part_gradients)
        before_next = [g for g in gradients if g is not None] or [outcome.losses]
        state = outcome.state
        outcomes.append(outcome)
        extra_losses.append(extras)
    losses = tf.concat([outcome.losses for outcome in outcomes], axis=0)
    own_loss = tf.reduce_sum(sample_weights * losses)
    own_loss += penalty / collectives.num_replicas()
    extras = {name: tf.add_n([e[name] for e in extra_losses]) for name in extras}
    for extra in extras.values():
        own_loss += extra
    healthy = tf.math.is_finite(own_loss)
    for outcome in outcomes if backward else ():
        # NaN or infinity from any shard shows up in the embedding gradients, before
        # any weight gradient is computed.
        healthy &= tf.reduce_all(tf.math.is_finite(outcome.embedding_gradients))
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
        distillation=extras.get("distillation"),
        statistics=statistics,
        random=random,
    )


def update(
    model: Classifier, passes: Any, proceed: tf.Tensor | None = None
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Updates all weights or none, see `Updater.apply`.

    Args:
        model: the compiled `Classifier`.
        passes: the `StepGradients`.
        proceed: bool scalar, see `Updater.apply`.

    Returns:
        (bool scalar, True if the update was applied; sums over the global batch, and
        the outcome of the workers' votes in a cluster).
    """
    figures = {"loss": passes.loss}
    for name, k in model.ranked_metrics.items():
        share = passes.sample_weights if name in model.weighted_metrics else passes.real
        figures[name] = tf.reduce_sum(share * tf.cast(passes.ranks < k, share.dtype))
    if model.weighted_metrics:
        figures["weights"] = tf.reduce_sum(passes.sample_weights)
    if passes.distillation is not None:
        figures["distillation"] = passes.distillation
    # The forward pass of a bad batch has already changed the batch-norm statistics.
    undo = _states(model)[0], passes.statistics
    gradients = passes.gradients, passes.pending, passes.healthy
    return model.trainer.updater.apply(*gradients, undo, figures, proceed)


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
    return statistics, [value for value in states if not value.dtype.is_floating]


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
        the layers' penalties, `{name: loss}` of the auxiliary logits and distillation).
    """
    images, labels, sample_weights = part
    dtype, distillation = keras.config.floatx(), model.distillation
    forward = model.trainer.forward or model.forward
    target = None if distillation is None else distillation.target(images)
    with tf.GradientTape() as tape:
        embeddings, penalties, extra = forward(images, labels, sample_weights)
        extras = {} if extra is None else {"auxiliary": extra}
        if distillation is not None:
            own = tf.cast(embeddings, dtype)
            extras["distillation"] = distillation.loss(own, target, sample_weights)
    penalty = tf.add_n([tf.zeros([], dtype), *penalties])
    of_head["with_ranks"] = bool(model.ranked_metrics) and backward
    batch = tf.cast(embeddings, dtype), labels, sample_weights
    if not backward:
        outcome = model.head.loss_and_gradients(*batch, **of_head, gradients=False)
        return outcome, [], penalty, extras
    if share is None:
        outcome = model.head.loss_and_gradients(*batch, **of_head)
    else:
        outcome = mixing.of_both_labels(model.head, batch, share, of_head)
    scale = tf.ones([], dtype)
    if model.loss_scale is not None:
        scale = tf.cast(model.loss_scale.value(), dtype)
    # Penalties are the same on every replica and in every part, so each part
    # contributes an equal share of their sum.
    share = scale / (collectives.num_replicas() * model.accumulation_steps)
    targets = [embeddings, *extras.values(), *penalties]
    above = [tf.cast(scale * outcome.embedding_gradients, embeddings.dtype)]
    above += [scale] * len(extras) + [share] * len(penalties)
    gradients = tape.gradient(targets, model.trained_network_variables(), above)
    if not model.head.sharded:
        of_head = model.head.second_pass.whole_gradients(outcome.pending)
        gradients += [scale * gradient for gradient in of_head]
    return outcome, gradients, penalty, extras


def _sum(first, second):
    if not first:
        return second
    return [a if b is None else a + b for a, b in zip(first, second, strict=True)]
