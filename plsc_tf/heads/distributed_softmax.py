"""Cross entropy over classes that are split over replicas, and its gradients.

Every replica sees the embeddings of the whole global batch and its own classes.
What it tells the others is three numbers per example: the largest of its logits,
the sum of their exponentials, and the target's logit where the class is its own.
Gradients are written out by hand, so that nothing of `[classes, batch]` has to
outlive the step, and no collective runs under a gradient tape.
"""

import dataclasses

import tensorflow as tf

# Squared norms below this count as zero vectors instead of dividing by zero.
TINY = 1e-24


@dataclasses.dataclass
class LocalLogits:
    """What one replica computes about its own classes; `classes` are its rows.

    Attributes:
        logits: `[classes, global_batch]`, scaled, margin applied.
        cosine: `[classes, global_batch]` without margin and scale, or None for
            plain softmax.
        hit: bool `[classes, global_batch]`, True at the example's own class.
        target: `[global_batch]` logit of the own class, 0 where it is elsewhere.
        plain_target: the same without margin, the score that accuracy compares.
        slope: `[global_batch]` derivative of the margin.
        inverse_norms: `[classes, 1]` 1 / ‖w‖, or None for plain softmax.
    """

    logits: tf.Tensor
    cosine: tf.Tensor | None
    hit: tf.Tensor
    target: tf.Tensor
    plain_target: tf.Tensor
    slope: tf.Tensor
    inverse_norms: tf.Tensor | None


def local_logits(weight, bias, embeddings, rows, margins, scale):
    """Logits of a replica's own classes for the global batch.

    Args:
        weight: `[classes, emb]`.
        bias: `[classes]` for plain softmax, else None.
        embeddings: `[global_batch, emb]`, L2-normalised for margin heads.
        rows: int64 `[global_batch]` label minus the first class of this replica.
        margins: the `Margins`.
        scale: factor of the cosines.
    """
    classes = tf.shape(weight, tf.int64)[0]
    own = (rows >= 0) & (rows < classes)
    hit = tf.range(classes)[:, None] == rows[None, :]
    safe_rows = tf.where(own, rows, 0)
    mask = tf.cast(own, weight.dtype)
    products = tf.matmul(weight, embeddings, transpose_b=True)
    target = tf.reduce_sum(tf.gather(weight, safe_rows) * embeddings, axis=1)
    if not margins.normalized:
        target = (target + tf.gather(bias, safe_rows)) * mask
        return LocalLogits(
            logits=products + bias[:, None],
            cosine=None,
            hit=hit,
            target=target,
            plain_target=target,
            slope=tf.ones_like(target),
            inverse_norms=None,
        )
    square = tf.reduce_sum(weight * weight, axis=1, keepdims=True)
    inverse_norms = tf.math.rsqrt(tf.maximum(square, TINY))
    cosine = products * inverse_norms
    target *= tf.gather(inverse_norms[:, 0], safe_rows)
    with_margin, slope = margins.apply(target)
    return LocalLogits(
        logits=tf.where(hit, scale * with_margin[None, :], scale * cosine),
        cosine=cosine,
        hit=hit,
        target=scale * with_margin * mask,
        plain_target=scale * target * mask,
        slope=slope,
        inverse_norms=inverse_norms,
    )


def local_statistics(local):
    """`[global_batch, 4]`: maximum, Σ exp(logit − maximum), target, plain target."""
    maximum = tf.reduce_max(local.logits, axis=0)
    total = tf.reduce_sum(tf.exp(local.logits - maximum), axis=0)
    return tf.stack([maximum, total, local.target, local.plain_target], axis=1)


def combine(statistics):
    """Joins the replicas' statistics.

    Args:
        statistics: `[num_replicas, global_batch, 4]` of `local_statistics`.

    Returns:
        (`[global_batch]` log Σ exp over all classes, `[global_batch]` target
        logit, `[global_batch]` target without margin).
    """
    maximum = tf.reduce_max(statistics[:, :, 0], axis=0)
    total = tf.reduce_sum(
        statistics[:, :, 1] * tf.exp(statistics[:, :, 0] - maximum), axis=0
    )
    targets = tf.reduce_sum(statistics[:, :, 2:], axis=0)
    return maximum + tf.math.log(total), targets[:, 0], targets[:, 1]


def local_gradients(weight, embeddings, local, log_total, upstream, scale):
    """Gradients of Σ upstream · loss from a replica's own classes.

    Args:
        weight: `[classes, emb]`.
        embeddings: `[global_batch, emb]` as given to `local_logits`.
        local: the `LocalLogits`.
        log_total: `[global_batch]` of `combine`.
        upstream: `[global_batch]` derivative of the objective by each loss.
        scale: factor of the cosines.

    Returns:
        (`[global_batch, emb]` this replica's share of the embeddings' gradient,
        `[classes, emb]` the weights' gradient, `[classes]` the biases' or None).
    """
    probability = tf.exp(local.logits - log_total)
    error = (probability - tf.cast(local.hit, weight.dtype)) * upstream
    if local.cosine is None:
        return (
            tf.matmul(error, weight, transpose_a=True),
            tf.matmul(error, embeddings),
            tf.reduce_sum(error, axis=1),
        )
    error = scale * tf.where(local.hit, error * local.slope, error)
    by_direction = error * local.inverse_norms
    # ŵ = w / ‖w‖: what points along w does not change ŵ.
    along = tf.reduce_sum(error * local.cosine, axis=1, keepdims=True)
    projection = along * tf.square(local.inverse_norms)
    return (
        tf.matmul(by_direction, weight, transpose_a=True),
        tf.matmul(by_direction, embeddings) - projection * weight,
        None,
    )


def count_above(local, plain_target, scale):
    """How many of a replica's classes score above the target, int32 `[global_batch]`.

    Accuracy ranks the scores without margins. The target's own entry is left out:
    rounding may put it above itself.
    """
    scores = local.logits if local.cosine is None else scale * local.cosine
    above = (scores > plain_target) & ~local.hit
    return tf.reduce_sum(tf.cast(above, tf.int32), axis=0)


def normalize(embeddings):
    """Returns (`[batch, emb]` of length 1, `[batch, 1]` 1 / ‖x‖)."""
    square = tf.reduce_sum(embeddings * embeddings, axis=1, keepdims=True)
    inverse = tf.math.rsqrt(tf.maximum(square, TINY))
    return embeddings * inverse, inverse


def normalize_gradient(unit, inverse, gradient):
    """Takes the gradient by x / ‖x‖ back to the gradient by x, `[batch, emb]`."""
    along = tf.reduce_sum(unit * gradient, axis=1, keepdims=True)
    return (gradient - along * unit) * inverse
