"""Layers that the networks of the zoo share."""

from dataclasses import dataclass

import keras
import tensorflow as tf
from keras import layers

from plsc_tf.backbones import blocks
from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.blocks import Style
from plsc_tf.backbones.embedding import EmbeddingLayers


@dataclass(frozen=True)
class Normed:
    """Convolutions without bias, each with batch normalisation and ReLU behind.

    Args:
        epsilon: of batch normalisation.
        scale: whether batch normalisation learns a scale; TF-Slim's Inceptions do not,
            since a convolution follows the ReLU.
    """

    epsilon: float = 1e-3
    scale: bool = False

    def conv(self, x, filters, size, *, stride=1, padding="same", name):
        """[N, h, w, c] to [N, h', w', filters].

        Args:
            x: [N, h, w, c] tensor.
            filters: output channels.
            size: of the kernel in pixels: one number, or (height, width).
            stride: step in pixels.
            padding: "same", TensorFlow's, or "valid".
            name: of the convolution.
        """
        x = layers.Conv2D(
            filters,
            size,
            strides=stride,
            padding=padding,
            use_bias=False,
            kernel_initializer=keras.initializers.HeNormal(),
            name=name,
        )(x)
        return self.norm_relu(x, name)

    def norm_relu(self, x, name):
        """Batch normalisation, then ReLU."""
        return layers.ReLU(name=f"{name}_relu")(self.norm(x, f"{name}_bn"))

    def norm(self, x, name):
        """Batch normalisation over the last axis."""
        return layers.BatchNormalization(
            epsilon=self.epsilon, scale=self.scale, name=name
        )(x)


@keras.saving.register_keras_serializable(package="plsc_tf")
class LocalResponseNormalization(layers.Layer):
    """Every value over a power of its neighbours' in the channels: `tf.nn.lrn`.

    Source: Krizhevsky et al. 2012, ImageNet classification, section 3.3.

    Args:
        depth_radius: channels on each side that count as neighbours.
        bias: offset of the sum, so that it is never zero.
        alpha: factor of the squares.
        beta: the power.
    """

    def __init__(self, depth_radius=4, bias=1.0, alpha=0.001 / 9, beta=0.75, **options):
        super().__init__(**options)
        self.depth_radius = depth_radius
        self.bias = bias
        self.alpha = alpha
        self.beta = beta

    def call(self, inputs):
        """Normalises [N, h, w, c]."""
        # TensorFlow has it for float32 only on GPUs, and not for bfloat16 on CPUs.
        normalised = tf.nn.local_response_normalization(
            tf.cast(inputs, tf.float32),
            self.depth_radius,
            self.bias,
            self.alpha,
            self.beta,
        )
        return tf.cast(normalised, inputs.dtype)

    def compute_output_shape(self, input_shape):
        """The input's shape."""
        return input_shape

    def get_config(self):
        """The arguments, for saving."""
        own = {
            "depth_radius": self.depth_radius,
            "bias": self.bias,
            "alpha": self.alpha,
            "beta": self.beta,
        }
        return {**super().get_config(), **own}


def dropout(x, arguments: NetworkArguments, own: float, name: str = "dropout"):
    """Drops the asked share of the features, or the network's own."""
    share = arguments.dropout_or(own)
    return layers.Dropout(share, name=name)(x) if share else x


def finish(image, features, arguments: NetworkArguments, *, name, momentum):
    """Features to a model: with an embedding layer where a size is asked for.

    Args:
        image: the symbolic input.
        features: [N, features] tensor, dropped out already.
        arguments: what all networks are asked for.
        name: the model's name.
        momentum: of all batch normalisations, of which Slim's 0.9997 needs tens of
            thousands of steps until the statistics are those of the data.
    """
    if arguments.embedding_size is not None:
        style = Style(
            epsilon=1e-3,
            conv_initializer=blocks.fan_out_normal,
            dense_initializer=blocks.fan_in_uniform,
        )
        features = EmbeddingLayers(arguments.embedding_size).dense(features, style)
    network = keras.Model(image, features, name=name)
    for layer in network.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = momentum
            layer.synchronized = arguments.synchronized_batch_norm
    return network
