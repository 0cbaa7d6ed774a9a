"""Computes the loss of the auxiliary logits that some zoo networks train with."""

import keras
import tensorflow as tf
from keras import layers

from plsc_tf.backbones.precision import Precision, apply
from plsc_tf.backbones.zoo.catalog import ENTRIES
from plsc_tf.backbones.zoo.layers import conv_norm_relu
from plsc_tf.requirements import require

# Every replica holds the whole auxiliary classifier, with 768 weights per class.
MOST_CLASSES = 50_000


class Auxiliary:
    """A second softmax classifier on a middle layer of a backbone.

    Its weights are trained together with the backbone and stored in training
    checkpoints. They are not part of the backbone, so inference and export do not
    include them.

    Args:
        backbone: a network made by `plsc_tf.backbones.build`.
        num_classes: number of classes.
        weight: factor of this classifier's loss (FastNN: 0.4).
        label_smoothing: same as the head's.
        dtype: the backbone's precision; the logits are float32.

    Attributes:
        branch: model from the middle layer's output to the auxiliary logits.
        network: model from images to (embeddings, auxiliary logits).

    Raises:
        ValueError: the network has no auxiliary logits, or there are too many classes.
    """

    def __init__(
        self,
        backbone: keras.Model,
        num_classes: int,
        *,
        weight: float = 0.4,
        label_smoothing: float = 0.0,
        dtype: str = "float32",
    ) -> None:
        # Every replica holds all of their weights.
        rule = f"Auxiliary logits support at most {MOST_CLASSES:,} classes"
        advice = "Set aux_logits_weight=0 to train without them"
        require(num_classes <= MOST_CLASSES, rule, advice, num_classes=num_classes)
        tap = tap_of(backbone)
        advice = "Set aux_logits_weight=0, or use a network that has them (docs/zoo.md)"
        require(tap, f"{backbone.name!r} has no auxiliary logits", advice)
        middle = backbone.get_layer(tap).output
        branch = _branch(middle.shape[1:], num_classes, f"{backbone.name}_auxiliary")
        self.branch = apply(branch, Precision(dtype))
        outputs = [backbone.outputs[0], self.branch(middle)]
        self.network = keras.Model(backbone.inputs[0], outputs)
        self.weight, self.label_smoothing = weight, label_smoothing

    def loss(
        self, logits: tf.Tensor, labels: tf.Tensor, sample_weights: tf.Tensor
    ) -> tf.Tensor:
        """Returns the replica's share of the weighted loss.

        Args:
            logits: `[batch, num_classes]`, the second output of `network`.
            labels: int64 `[batch]`.
            sample_weights: `[batch]`, see `plsc_tf.heads.base.Head.loss_and_gradients`.
        """
        logs = tf.nn.log_softmax(tf.cast(logits, sample_weights.dtype))
        true = tf.gather(logs, labels, axis=1, batch_dims=1)
        smooth = self.label_smoothing
        losses = -(1 - smooth) * true - smooth * tf.reduce_mean(logs, axis=1)
        return self.weight * tf.reduce_sum(sample_weights * losses)


def tap_of(network: keras.Model) -> str | None:
    """Returns the name of the layer that auxiliary logits read, or None."""
    entry = ENTRIES.get(network.name)
    names = {layer.name for layer in network.layers}
    return entry.auxiliary if entry and entry.auxiliary in names else None


def _branch(shape, num_classes, name):
    """Builds the layers from the middle of a network to auxiliary logits.

    These are 5×5 average pooling with stride 3, a 1×1 convolution with 128 channels, a
    convolution with 768 channels over all remaining pixels, and a dense layer. Source:
    Szegedy et al. 2015, arXiv:1512.00567, section 4, as in TF-Slim's Inceptions and
    NASNets.
    """
    features = keras.Input(shape, name="middle")
    x = layers.ReLU(name="auxiliary_relu")(features)
    window = [min(5, side) for side in x.shape[1:3]]
    x = layers.AveragePooling2D(window, 3, name="auxiliary_pool")(x)
    x = conv_norm_relu(x, 128, 1, name="auxiliary_1")
    x = conv_norm_relu(x, 768, tuple(x.shape[1:3]), padding="valid", name="auxiliary_2")
    x = layers.Flatten(name="auxiliary_flatten")(x)
    x = layers.Dense(num_classes, name="auxiliary_logits")(x)
    return keras.Model(features, x, name=name)
