"""One training step of one replica."""

import dataclasses

import keras
import tensorflow as tf

from plsc_tf.heads.second_pass import join
from plsc_tf.parallel import collectives


def train_step(model, images, labels, weights, real=None):
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
    found = gradients(model, images, labels, weights, real)
    finite, votes = model.updater.apply(found.gradients, found.pending, found.healthy)
    return finish(model, found, finite, votes)


@dataclasses.dataclass
class Found:
    """What the forward and backward pass of one replica found.

    Attributes:
        gradients: the replica's share, one per replicated weight, None where a weight
            has no part in the loss; times the loss scale.
        pending: of the head's step, see `plsc_tf.heads.passes.HeadStep`; None of a
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
    state: dict
    statistics: list
    random: list


def gradients(model, images, labels, weights, real=None):
    """Forward and backward pass; args as of `train_step`; returns `Found`."""
    upstream, real, total = shares(weights, real)
    statistics, random = _states(model)
    before = [tf.identity(value) for value in statistics]
    before_random = [tf.identity(value) for value in random]
    head, count = model.head, model.accumulation_steps
    step = tf.convert_to_tensor(model.optimizer.iterations)
    share = None
    if model.mixing is not None:
        images, labels, share = model.mixing(images, labels, weights, step)
    chosen = head.sample(tf.reshape(labels, [-1]), step)
    gradients, outcomes, state, extra_losses = None, [], None, []
    penalty = tf.zeros([], upstream.dtype)
    parts = (tf.split(value, count) for value in (images, labels, upstream))
    for part in zip(*parts, strict=True):
        # One part after the other: together they would need all activations at once.
        with tf.control_dependencies(_values(gradients)):
            outcome, found, penalty, extra = _part(
                model, *part, share, step=step, chosen=chosen, state=state
            )
        gradients = found if gradients is None else _sum(gradients, found)
        state = outcome.state
        outcomes.append(outcome)
        extra_losses.append(extra)
    losses = tf.concat([outcome.losses for outcome in outcomes], axis=0)
    own_loss = tf.reduce_sum(upstream * losses) + penalty / collectives.num_replicas()
    if model.auxiliary is not None:
        own_loss += tf.add_n(extra_losses)
    healthy = tf.math.is_finite(own_loss)
    for outcome in outcomes:
        # What is not finite in a shard shows here, before any weight's gradient.
        bad = tf.math.is_finite(outcome.embedding_gradients)
        healthy &= tf.reduce_all(bad)
    ranks = None
    if model.ranked_metrics:
        ranks = tf.concat([outcome.ranks for outcome in outcomes], axis=0)
    return Found(
        gradients=gradients,
        pending=join([o.pending for o in outcomes]) if head.sharded else None,
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


def finish(model, found, finite, votes):
    """Keeps what the passes have changed, or takes it back; returns the results.

    Args:
        model: the compiled `Classifier`.
        found: the `Found`.
        finite: bool scalar, whether the update was applied.
        votes: what the workers of a cluster have voted.

    Returns:
        see `train_step`.
    """
    statistics, random = _states(model)
    # The forward pass of a bad batch has moved the batch-norm statistics already.
    for value, old in zip(statistics, found.statistics, strict=True):
        value.assign(tf.where(finite, value, old))
    if votes:
        for value, old in zip(random, found.random, strict=True):
            value.assign(tf.where(votes["aborted"], old, value))
    model.head.keep_state(found.state, finite)
    result = {
        "loss": collectives.all_sum(found.loss),
        "examples": found.examples,
        "finite": finite,
        **votes,
    }
    for name, k in model.ranked_metrics.items():
        weighted = name in model.weighted_metrics
        share = found.upstream if weighted else found.real
        correct = tf.cast(found.ranks < k, share.dtype)
        result[name] = collectives.all_sum(tf.reduce_sum(share * correct))
    if model.weighted_metrics:
        total = collectives.all_sum(tf.reduce_sum(found.upstream))
        for name in model.weighted_metrics:
            result[name] = tf.math.divide_no_nan(result[name], total)
        result["weights"] = total * found.examples
    return result


def shares(weights, real=None):
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


def _part(model, images, labels, upstream, share, **of_head):
    """Forward and backward pass of a part of the replica's batch.

    Args:
        labels: `[b]`, or with `share` of `Mixing` `[b, 2]`.
        of_head: step, chosen and state.

    Returns:
        (`HeadStep`, gradients of the replicated weights times the loss scale, sum of
        the penalties of a user's layers, loss of the auxiliary logits or None).
    """
    dtype, extra = keras.config.floatx(), None
    with tf.GradientTape() as tape:
        if model.auxiliary is None:
            embeddings = model(images, training=True)
        else:
            normalised = model.normalise(images)
            embeddings, extra = model.auxiliary(normalised, labels, upstream)
        penalties = [tf.cast(penalty, dtype) for penalty in model.backbone.losses]
    of_head["with_ranks"] = bool(model.ranked_metrics)
    batch = tf.cast(embeddings, dtype), labels, upstream
    if share is None:
        outcome = model.head.loss_and_gradients(*batch, **of_head)
    else:
        outcome = of_both_labels(model.head, *batch, share, of_head)
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
        own = model.head.weight_gradients(outcome.pending)
        gradients += [scale * gradient for gradient in own]
    return outcome, gradients, tf.add_n([tf.zeros([], dtype), *penalties]), extra


def of_both_labels(head, embeddings, labels, upstream, share, of_head):
    """The `HeadStep` of share · loss(first label) + (1 - share) · loss(second label).

    Every example goes through the head twice, once with each label.
    """
    outcome = head.loss_and_gradients(
        tf.concat([embeddings, embeddings], axis=0),
        tf.concat(tf.unstack(labels, axis=1), axis=0),
        tf.concat([share * upstream, (1 - share) * upstream], axis=0),
        **of_head,
    )
    first, second = tf.split(outcome.losses, 2)
    ranks = outcome.ranks
    return dataclasses.replace(
        outcome,
        losses=share * first + (1 - share) * second,
        embedding_gradients=tf.add_n(tf.split(outcome.embedding_gradients, 2)),
        ranks=None if ranks is None else tf.split(ranks, 2)[0],
    )


def _values(gradients):
    return [gradient for gradient in gradients or [] if gradient is not None]


def _sum(first, second):
    return [a if b is None else a + b for a, b in zip(first, second, strict=True)]
