"""Layers that the networks of the zoo share."""

import keras
import tensorflow as tf
from keras import layers

from plsc_tf.backbones.arguments import NetworkArguments


def conv(x, filters, size, *, stride=1, padding="same", bias=False, name):  # noqa: PLR0913
    """Convolution with He's initial weights.

    Args:
        x: [N, h, w, c] tensor.
        filters: output channels.
        size: of the kernel in pixels: one number, or (height, width).
        stride: step in pixels.
        padding: "same", TensorFlow's, or "valid".
        bias: whether it has a bias.
        name: the layer's name.
    """
    return layers.Conv2D(
        filters,
        size,
        strides=stride,
        padding=padding,
        use_bias=bias,
        kernel_initializer=keras.initializers.HeNormal(),
        name=name,
    )(x)


def norm(x, name, epsilon=1e-3, scale=True):
    """Batch normalization over the last axis."""
    bn = layers.BatchNormalization(epsilon=epsilon, scale=scale, name=f"{name}_bn")
    return bn(x)


def conv_norm_relu(x, filters, size, *, name, **options):
    """`conv`, batch normalization without a scale as in TF-Slim's Inceptions, ReLU."""
    x = norm(conv(x, filters, size, name=name, **options), name, scale=False)
    return layers.ReLU(name=f"{name}_relu")(x)


def dropout(x, arguments: NetworkArguments, default: float, name: str = "dropout"):
    """Drops the requested share of the features, or the network's default."""
    share = arguments.dropout_or(default)
    return layers.Dropout(share, name=name)(x) if share else x


@keras.saving.register_keras_serializable(package="plsc_tf")
class LocalResponseNormalization(layers.Layer):
    """Divides each value by a power of its neighbors' in the channels: `tf.nn.lrn`.

    Source: Krizhevsky et al. 2012, ImageNet classification, section 3.3; 4 channels on
    each side are neighbors.
    """

    def call(self, inputs):
        """Normalizes [N, h, w, c]."""
        # TensorFlow has it for float32 only on GPUs, and not for bfloat16 on CPUs.
        values = tf.cast(inputs, tf.float32)
        constants = {"depth_radius": 4, "bias": 1.0, "alpha": 0.001 / 9, "beta": 0.75}
        normalized = tf.nn.local_response_normalization(values, **constants)
        return tf.cast(normalized, inputs.dtype)

    def compute_output_shape(self, input_shape):
        """The input's shape."""
        return input_shape
