"""Batch normalization and PReLU that read and write memory less often than Keras's.

Networks keep Keras's layers. `substitute` returns a function that computes in training
what a layer computes, from the layer's weights.
"""

import functools
import math
from collections.abc import Callable

import tensorflow as tf
from keras import layers

from plsc_tf.parallel import collectives

# How to compute: in single kernels, as part of a function that XLA compiles, or like
# Keras, except for messages between replicas.
KERNELS, COMPILED, KERAS = "kernels", "compiled", "keras"
_PHILOX_FACTORS = (0xD2511F53, 0xCD9E8D57)
_PHILOX_STEPS = (0x9E3779B9, 0xBB67AE85)
_FRACTION_BITS = {"float16": 10, "bfloat16": 7, "float32": 23}


def substitute(mode: str, layer: layers.Layer) -> Callable | None:
    """Returns a function that replaces a layer's call in training, or None.

    Args:
        mode: `KERNELS`, `COMPILED` or `KERAS`.
        layer: the layer.
    """
    if layer.activity_regularizer is not None:
        return None
    if type(layer) is layers.Dropout and mode == COMPILED:
        known = layer.rate and layer.compute_dtype in _FRACTION_BITS
        return functools.partial(_dropout, layer) if known else None
    if type(layer) is layers.PReLU and mode != KERAS:
        return functools.partial(_prelu, layer, mode)
    if (
        type(layer) is layers.BatchNormalization
        and (layer.synchronized or mode != KERAS)
        and layer.trainable
        and not layer.renorm
        and layer.axis in (-1, layer.input_spec.ndim - 1)
    ):
        return functools.partial(_batch_norm, layer, mode)
    return None


def _dropout(layer, x):
    """Applies dropout with TensorFlow's masks; XLA would draw other ones."""
    x = tf.cast(x, layer.compute_dtype)
    seed = layer.seed_generator.next()
    # As Keras does, because TensorFlow takes int32 only.
    seed = tf.cast(seed % (tf.int32.max - 1), tf.int32)
    shape = [
        actual if size is None else size
        for actual, size in zip(x.shape, layer.noise_shape or x.shape, strict=True)
    ]
    keep = _uniform(shape, seed, x.dtype) >= tf.cast(layer.rate, x.dtype)
    scaled = x * tf.cast(1 / (1 - layer.rate), x.dtype)
    return tf.where(keep, scaled, tf.zeros_like(x))


def _uniform(shape, seed, dtype):
    """Returns the numbers of `tf.random.stateless_uniform`.

    Source: Salmon et al. 2011, Parallel random numbers: as easy as 1, 2, 3 (Philox 4×32
    with ten rounds). The last bits of each word become the fraction of a number.
    """
    count = math.prod(shape)
    key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
    keys = tf.unstack(tf.bitcast(key[0], tf.uint32))
    # The seed determines the upper half of the counter; the lower half numbers blocks.
    blocks = tf.bitcast(tf.range(-(-count // 4)), tf.uint32)
    zeros = tf.zeros_like(blocks)
    upper = tf.unstack(tf.bitcast(counter[1], tf.uint32))
    words = [blocks, zeros, *(zeros + word for word in upper)]
    xor = tf.bitwise.bitwise_xor
    for _ in range(10):
        (low0, high0), (low1, high1) = (
            tf.unstack(tf.bitcast(tf.cast(word, tf.uint64) * factor, tf.uint32), axis=1)
            for word, factor in zip(words[::2], _PHILOX_FACTORS, strict=True)
        )
        words = [
            *(xor(xor(high1, words[1]), keys[0]), low1),
            *(xor(xor(high0, words[3]), keys[1]), low0),
        ]
        keys = [key + step for key, step in zip(keys, _PHILOX_STEPS, strict=True)]
    bits = _FRACTION_BITS[dtype.name]
    words = tf.reshape(tf.stack(words, axis=1), [-1])[:count]
    fractions = tf.cast(tf.bitwise.bitwise_and(words, 2**bits - 1), tf.float32)
    return tf.reshape(tf.cast(fractions * 2.0**-bits, dtype), shape)


def _prelu(layer, mode, x):
    forward, backward = _prelu_forward, _prelu_backward
    if mode == COMPILED:
        forward, backward = forward.python_function, backward.python_function

    @tf.custom_gradient
    def prelu(x, alpha):
        return forward(x, alpha), functools.partial(backward, x, alpha)

    return prelu(
        tf.cast(x, layer.compute_dtype), tf.convert_to_tensor(layer.alpha.value)
    )


@tf.function(autograph=False, jit_compile=True)
def _prelu_forward(x, alpha):
    return tf.where(x > 0, x, tf.cast(alpha, x.dtype) * x)


@tf.function(autograph=False, jit_compile=True)
def _prelu_backward(x, alpha, upstream):
    slope = tf.where(x > 0, tf.ones_like(x), tf.cast(alpha, x.dtype))
    # Like Keras, the derivative at 0 is 0.
    gradient = upstream * tf.where(x == 0, tf.zeros_like(x), slope)
    shared = [i for i, size in enumerate(alpha.shape, start=1) if size == 1]
    of_alpha = tf.cast(upstream * tf.minimum(x, 0), alpha.dtype)
    of_alpha = tf.reduce_sum(of_alpha, axis=[0, *shared])
    return gradient, tf.reshape(of_alpha, alpha.shape)


def _batch_norm(layer, mode, x):
    x = tf.cast(x, layer.compute_dtype)
    channels, dtype = x.shape[-1], layer.moving_mean.dtype
    weights = (layer.gamma, tf.ones), (layer.beta, tf.zeros)
    scale, offset = (
        make([channels], dtype)
        if weight is None
        else tf.convert_to_tensor(weight.value)
        for weight, make in weights
    )
    kernel = mode == KERNELS and not layer.synchronized and dtype == "float32"
    normalize = _normalize_in_a_kernel if kernel else _normalize
    scale, offset = tf.convert_to_tensor(scale), tf.convert_to_tensor(offset)
    y, mean, variance = normalize(x, scale, offset, layer)
    for moving, value in (
        (layer.moving_mean, mean),
        (layer.moving_variance, variance),
    ):
        old = moving.value * layer.momentum
        moving.assign(old + value * (1.0 - layer.momentum))
    return y


def _normalize_in_a_kernel(x, scale, offset, layer):
    """Returns x, normalized, and the mean and the variance of its channels."""
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=x if x.shape.rank == 4 else tf.reshape(x, [-1, 1, 1, x.shape[-1]]),
        scale=scale,
        offset=offset,
        mean=tf.zeros([0]),
        variance=tf.zeros([0]),
        epsilon=layer.epsilon,
    )
    # The kernel divides by count - 1, as statisticians do for a sample.
    count = tf.cast(tf.size(x) // x.shape[-1], variance.dtype)
    return tf.reshape(y, tf.shape(x)), mean, variance * ((count - 1) / count)


def _normalize(x, scale, offset, layer):
    """Returns the same; synchronized layers send one message in each direction."""
    replicas = collectives.num_replicas() if layer.synchronized else 1
    axes, dtype = list(range(x.shape.rank - 1)), scale.dtype
    count = tf.cast(tf.size(x) // x.shape[-1] * replicas, dtype)

    def total(*values):
        """Returns the sums over the examples of all replicas, and of this one."""
        own = tf.stack([tf.reduce_sum(value, axes) for value in values])
        return tf.unstack(collectives.all_sum(own) if replicas > 1 else own), own

    @tf.custom_gradient
    def normalize(x, scale, offset):
        wide = tf.cast(x, dtype)
        if replicas > 1:
            sums, _ = total(wide, tf.square(wide))
            mean = sums[0] / count
            variance = tf.maximum(sums[1] / count - tf.square(mean), 0)
        else:
            mean, variance = tf.nn.moments(wide, axes)
        y = tf.nn.batch_normalization(
            wide, mean, variance, offset, scale, layer.epsilon
        )

        def backward(upstream, *_):
            inverse = tf.math.rsqrt(variance + layer.epsilon)
            # Cast again instead of keeping x in two precisions.
            normalized = (tf.cast(x, dtype) - mean) * inverse
            upstream = tf.cast(upstream, dtype)
            sums, own = total(upstream, upstream * normalized)
            gradient = upstream - (sums[0] + normalized * sums[1]) / count
            gradient *= scale * inverse
            return tf.cast(gradient, x.dtype), own[1], own[0]

        return (tf.cast(y, x.dtype), mean, variance), backward

    return normalize(x, scale, offset)
