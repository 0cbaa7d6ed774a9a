"""Auxiliary logits: a second classifier halfway up, for training only."""

import keras
from keras import layers

from plsc_tf.backbones import precision as precisions
from plsc_tf.backbones.precision import Precision
from plsc_tf.backbones.zoo.catalog import ENTRIES
from plsc_tf.backbones.zoo.layers import conv_norm_relu


def branch(network: keras.Model, num_classes: int, precision: Precision):
    """The layers from a network's middle to auxiliary logits.

    Average pooling of 5×5 with stride 3, 128 channels, a convolution over all pixels
    that are left with 768, and the logits. Source: Szegedy et al. 2015,
    arXiv:1512.00567, section 4, in the form of TF-Slim's Inceptions and NASNets.

    Args:
        network: of `plsc_tf.backbones.build`.
        num_classes: classes.
        precision: that the network computes in; the logits are float32.

    Returns:
        (name of the layer that they read, model from its output to the logits
        [N, num_classes]), or None for a network that has none.
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
    # Lists of layers are the network's; what they say of it is not for these layers.
    return tap, precisions.apply(model, Precision(precision.dtype))


def tap_of(network: keras.Model) -> str | None:
    """The layer that auxiliary logits read; None where a network has none."""
    entry = ENTRIES.get(network.name)
    names = {layer.name for layer in network.layers}
    return entry.auxiliary if entry and entry.auxiliary in names else None
