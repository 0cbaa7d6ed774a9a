"""Layers that zoo networks share."""

import tensorflow as tf
from keras import layers, saving

from plsc_tf.backbones.arguments import NetworkArguments


def conv(x, filters, size, *, stride=1, **options):
    """Applies a convolution, by default with He initialization and without a bias.

    Args:
        x: `[N, h, w, c]` tensor.
        filters: output channels.
        size: kernel size in pixels: one number, or (height, width).
        stride: stride in pixels.
        **options: of `keras.layers.Conv2D`; the padding is "same" by default.
    """
    default = {"padding": "same", "use_bias": False, "kernel_initializer": "he_normal"}
    return layers.Conv2D(filters, size, strides=stride, **default | options)(x)


def norm(x, name, scale=True):
    """Applies batch normalization over the last axis."""
    return layers.BatchNormalization(epsilon=1e-3, scale=scale, name=f"{name}_bn")(x)


def conv_norm_relu(x, filters, size, *, name, **options):
    """Applies `conv`, batch normalization without a scale (as in TF-Slim), and ReLU."""
    x = norm(conv(x, filters, size, name=name, **options), name, scale=False)
    return layers.ReLU(name=f"{name}_relu")(x)


def dropout(x, arguments: NetworkArguments, default: float, name: str = "dropout"):
    """Applies dropout at the requested rate, or at the network's default."""
    share = arguments.dropout_or(default)
    return layers.Dropout(share, name=name)(x) if share else x


@saving.register_keras_serializable(package="plsc_tf")
class LocalResponseNormalization(layers.Layer):
    """Local response normalization across nine neighboring channels (`tf.nn.lrn`).

    Source: Krizhevsky et al. 2012, ImageNet classification, section 3.3, with four
    neighboring channels on each side.
    """

    def call(self, inputs):
        """Normalizes an `[N, h, w, c]` tensor."""
        # On GPUs TensorFlow supports only float32; on CPUs it doesn't support bfloat16.
        values = tf.cast(inputs, tf.float32)
        constants = {"depth_radius": 4, "bias": 1.0, "alpha": 0.001 / 9, "beta": 0.75}
        normalized = tf.nn.local_response_normalization(values, **constants)
        return tf.cast(normalized, inputs.dtype)
