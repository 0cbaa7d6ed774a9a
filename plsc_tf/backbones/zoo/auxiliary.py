"""Auxiliary logits: a second classifier halfway up, for training only."""

import keras
from keras import layers

from plsc_tf.backbones import precision as precisions
from plsc_tf.backbones.precision import Precision
from plsc_tf.backbones.zoo.catalog import ENTRIES
from plsc_tf.backbones.zoo.layers import conv_norm_relu


def branch(network: keras.Model, num_classes: int, precision: Precision):
    """Builds the layers from the middle of a network to auxiliary logits.

    These are 5×5 average pooling with stride 3, a 1×1 convolution with 128 channels, a
    convolution with 768 channels over all remaining pixels, and a dense layer. Source:
    Szegedy et al. 2015, arXiv:1512.00567, section 4, as in TF-Slim's Inceptions and
    NASNets.

    Args:
        network: network built by `plsc_tf.backbones.build`.
        num_classes: number of classes.
        precision: the network's precision; the logits are float32.

    Returns:
        (name of the layer to read, model from its output to logits
        `[N, num_classes]`), or None if the network has no auxiliary logits.
    """
    tap = tap_of(network)
    if tap is None:
        return None
    features = keras.Input(network.get_layer(tap).output.shape[1:], name="middle")
    x = layers.ReLU(name="auxiliary_relu")(features)
    window = [min(5, side) for side in x.shape[1:3]]
    x = layers.AveragePooling2D(window, 3, name="auxiliary_pool")(x)
    x = conv_norm_relu(x, 128, 1, name="auxiliary_1")
    whole = tuple(x.shape[1:3])
    x = conv_norm_relu(x, 768, whole, padding="valid", name="auxiliary_2")
    x = layers.Flatten(name="auxiliary_flatten")(x)
    x = layers.Dense(num_classes, name="auxiliary_logits")(x)
    model = keras.Model(features, x, name=f"{network.name}_auxiliary")
    # Use only the dtype, because the lists name the network's layers.
    return tap, precisions.apply(model, Precision(precision.dtype))


def tap_of(network: keras.Model) -> str | None:
    """Returns the name of the layer that auxiliary logits read, or None."""
    entry = ENTRIES.get(network.name)
    names = {layer.name for layer in network.layers}
    return entry.auxiliary if entry and entry.auxiliary in names else None
