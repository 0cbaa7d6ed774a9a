"""Computes the loss of the auxiliary logits that some zoo networks train with."""

from __future__ import annotations

import keras
import tensorflow as tf

from plsc_tf.backbones.precision import Precision
from plsc_tf.backbones.zoo import auxiliary

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
        precision: the `Precision` of the backbone.

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
        precision: Precision | None = None,
    ) -> None:
        if num_classes > MOST_CLASSES:
            raise ValueError(
                f"Auxiliary logits support at most {MOST_CLASSES:,} classes, because "
                "every replica holds all of their weights. Received: num_classes="
                f"{num_classes}. Set aux_logits_weight=0 to train without them."
            )
        branch = auxiliary.branch(backbone, num_classes, precision or Precision())
        if branch is None:
            raise ValueError(
                f"{backbone.name!r} has no auxiliary logits. Set aux_logits_weight=0, "
                "or choose a network that has them (docs/zoo.md)."
            )
        tap, self.branch = branch
        logits = self.branch(backbone.get_layer(tap).output)
        self.network = keras.Model(backbone.inputs[0], [backbone.outputs[0], logits])
        self.weight = weight
        self.label_smoothing = label_smoothing

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


def has_auxiliary_logits(backbone: keras.Model) -> bool:
    """Returns whether a backbone supports auxiliary logits."""
    return auxiliary.tap_of(backbone) is not None
