"""One training step of one replica."""

import keras
import tensorflow as tf

from plsc_tf.parallel import collectives


def train_step(model, images, labels, weights):
    """Forward, backward, and the update of everything or nothing.

    The objective is Σ weight · loss / Σ weight over the global batch, however it is
    cut into replicas.

    Args:
        model: the compiled `Classifier`.
        images: `[b, h, w, 3]` of this replica, in 0 … 255.
        labels: int64 `[b]` in [0, num_classes).
        weights: float32 `[b]`, 0 for padding.

    Returns:
        dict of scalars, equal on every replica: `loss`, the requested metrics,
        `examples`, the sum of the weights, and `finite`, whether the update was
        applied.
    """
    dtype = keras.config.floatx()
    weights = tf.cast(weights, dtype)
    total = tf.maximum(collectives.all_sum(tf.reduce_sum(weights)), 1e-12)
    upstream = weights / total
    statistics = [
        v.value
        for v in model.backbone.non_trainable_variables
        if v.value.dtype.is_floating
    ]
    before = [tf.identity(value) for value in statistics]
    with tf.GradientTape() as tape:
        embeddings = model(images, training=True)
        penalties = [tf.cast(penalty, dtype) for penalty in model.backbone.losses]
    outcome = model.head.loss_and_gradients(
        tf.cast(embeddings, dtype), labels, upstream, bool(model.ranked_metrics)
    )
    # Penalties of a user's layers are the same on every replica, and are summed.
    share = 1.0 / collectives.num_replicas()
    gradients = tape.gradient(
        [embeddings, *penalties],
        model.backbone.trainable_variables,
        output_gradients=[
            tf.cast(outcome.embedding_gradients, embeddings.dtype),
            *(tf.constant(share, dtype) for _ in penalties),
        ],
    )
    sharded = outcome.weight_gradients
    if not model.head.sharded:
        gradients, sharded = gradients + outcome.weight_gradients, []
    own_loss = tf.reduce_sum(upstream * outcome.losses)
    own_loss += share * tf.add_n([tf.zeros([], dtype), *penalties])
    finite = model.updater.apply(gradients, sharded, tf.math.is_finite(own_loss))
    # The forward pass of a bad batch has moved the batch-norm statistics already.
    for value, old in zip(statistics, before, strict=True):
        value.assign(tf.where(finite, value, old))
    result = {
        "loss": collectives.all_sum(own_loss),
        "examples": total,
        "finite": finite,
    }
    for name, k in model.ranked_metrics.items():
        correct = tf.cast(outcome.ranks < k, dtype)
        result[name] = collectives.all_sum(tf.reduce_sum(upstream * correct))
    return result
