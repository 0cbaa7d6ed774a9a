"""Batch normalization and PReLU that read and write memory less often than Keras's.

Networks keep Keras's layers. `substitute` returns a function that computes in training
what a layer computes, from the layer's weights.
"""

import functools
from collections.abc import Callable

import tensorflow as tf
from keras import layers

from plsc_tf.graphs import with_xla
from plsc_tf.parallel import collectives


def substitute(fused: bool, layer: layers.Layer) -> Callable | None:
    """Returns a function that replaces a layer's call in training, or None.

    Args:
        fused: whether to replace all layers that this module knows; if False, only
            those that send messages between replicas.
        layer: the layer.
    """
    if layer.activity_regularizer is not None:
        return None
    if type(layer) is layers.PReLU and fused:
        return functools.partial(_prelu, layer)
    if (
        type(layer) is layers.BatchNormalization
        and (layer.synchronized or fused)
        and layer.trainable
        and not getattr(layer, "renorm", False)  # since Keras 3.14
        and layer.axis in (-1, layer.input_spec.ndim - 1)
        and layer.variable_dtype == "float32"
    ):
        return functools.partial(_batch_norm, layer)
    return None


def _prelu(layer, x):
    alpha = tf.convert_to_tensor(layer.alpha.value)
    return _differentiable_prelu(tf.cast(x, layer.compute_dtype), alpha)


@tf.custom_gradient
def _differentiable_prelu(x, alpha):
    # TensorFlow's gradient would keep both halves of x instead of x.
    return _prelu_kernel(x, alpha), functools.partial(_prelu_gradients, x, alpha)


@with_xla
def _prelu_kernel(x, alpha):
    return tf.nn.relu(x) - tf.cast(alpha, x.dtype) * tf.nn.relu(-x)


@with_xla
def _prelu_gradients(x, alpha, upstream):
    below = tf.cast(alpha, x.dtype) * upstream
    of_x = tf.where(x > 0, upstream, tf.where(x < 0, below, tf.zeros_like(x)))
    of_alpha = tf.cast(upstream, alpha.dtype) * tf.cast(-tf.nn.relu(-x), alpha.dtype)
    shared = [i for i, size in enumerate(alpha.shape, 1) if size == 1]
    of_alpha = tf.reduce_sum(of_alpha, [0, *shared])
    return of_x, tf.reshape(of_alpha, alpha.shape)


def _batch_norm(layer, x):
    x = tf.cast(x, layer.compute_dtype)
    constants = tf.ones([x.shape[-1]]), tf.zeros([x.shape[-1]])
    scale, offset = (
        constant if weight is None else tf.convert_to_tensor(weight.value)
        for weight, constant in zip((layer.gamma, layer.beta), constants, strict=True)
    )
    normalize = _normalize_together if layer.synchronized else _normalize
    y, mean, variance = normalize(x, scale, offset, layer.epsilon)
    for moving, value in (layer.moving_mean, mean), (layer.moving_variance, variance):
        moving.assign(moving.value * layer.momentum + value * (1.0 - layer.momentum))
    return y


def _normalize(x, scale, offset, epsilon):
    """Returns x, normalized, and the mean and the variance of its channels."""
    image = x if x.shape.rank == 4 else tf.reshape(x, [-1, 1, 1, x.shape[-1]])
    unknown = {"mean": tf.zeros([0]), "variance": tf.zeros([0])}
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=image, scale=scale, offset=offset, epsilon=epsilon, **unknown
    )
    # The kernel divides by count - 1, as statisticians do for a sample.
    count = tf.cast(tf.size(x) // x.shape[-1], variance.dtype)
    return tf.reshape(y, tf.shape(x)), mean, variance * ((count - 1) / count)


def _normalize_together(x, scale, offset, epsilon):
    """Returns the same over all replicas, with one message in each direction."""
    axes, dtype = list(range(x.shape.rank - 1)), scale.dtype
    count = tf.cast(tf.size(x) // x.shape[-1] * collectives.num_replicas(), dtype)

    def own_sums(*values):
        return tf.stack([tf.reduce_sum(value, axes) for value in values])

    @tf.custom_gradient
    def normalize(x, scale, offset):
        wide = tf.cast(x, dtype)
        sums = collectives.all_sum(own_sums(wide, tf.square(wide)))
        mean = sums[0] / count
        variance = tf.maximum(sums[1] / count - tf.square(mean), 0)
        y = tf.nn.batch_normalization(wide, mean, variance, offset, scale, epsilon)

        def backward(upstream, *_):
            inverse = tf.math.rsqrt(variance + epsilon)
            # Cast again instead of keeping x in two precisions.
            normalized = (tf.cast(x, dtype) - mean) * inverse
            upstream = tf.cast(upstream, dtype)
            own = own_sums(upstream, upstream * normalized)
            sums = collectives.all_sum(own)
            gradient = upstream - (sums[0] + normalized * sums[1]) / count
            gradient *= scale * inverse
            return tf.cast(gradient, x.dtype), own[1], own[0]

        return (tf.cast(y, x.dtype), mean, variance), backward

    return normalize(x, scale, offset)
