"""Embedding layers: from the last feature map to the embedding."""

from dataclasses import dataclass

import keras
from keras import layers

from plsc_tf.backbones.blocks import Style

POOLINGS = ("flatten", "gap", "gdc")


@dataclass(frozen=True)
class EmbeddingLayers:
    """What follows the last feature map.

    Args:
        size: numbers per embedding.
        dropout: share of the features dropped before the dense layer.
        pooling: "flatten" keeps every pixel (arcface_torch, PLSC), "gap" averages the
            pixels, "gdc" weighs them by a global depthwise convolution
            (MobileFaceNet).
        use_bias: whether the dense layer has a bias.
        scale: whether the last batch normalisation learns a scale; arcface_torch
            fixes it at 1.
    """

    size: int
    dropout: float = 0.0
    pooling: str = "flatten"
    use_bias: bool = True
    scale: bool = True

    def __post_init__(self):
        if self.pooling not in POOLINGS:
            raise ValueError(
                f"head must be one of {', '.join(POOLINGS)}. "
                f"Received: head={self.pooling!r}"
            )

    def __call__(self, x, style: Style):
        """[N, h, w, c] features to [N, size] embeddings.

        The dense layer and its batch normalisation compute in the precision of their
        weights, so in float32 under mixed policies, as arcface_torch has it.

        Args:
            x: [N, h, w, c] tensor.
            style: how the layers are made.
        """
        if self.pooling == "gap":
            x = layers.GlobalAveragePooling2D(name="pool")(x)
        else:
            if self.pooling == "gdc":
                x = style.global_depthwise(x, name="pool_depthwise")
                x = style.norm(x, name="pool_bn")
            x = layers.Flatten(name="flatten")(x)
        if self.dropout:
            x = layers.Dropout(self.dropout, name="dropout")(x)
        return self.dense(x, style)

    def dense(self, x, style: Style):
        """[N, features] to [N, size] embeddings: what follows pooling and dropout."""
        precision = keras.config.dtype_policy().variable_dtype
        fans = (x.shape[-1], self.size)
        x = layers.Dense(
            self.size,
            use_bias=self.use_bias,
            kernel_initializer=style.dense_initializer(*fans),
            bias_initializer=style.bias_initializer(*fans),
            dtype=precision,
            name="embedding_dense",
        )(x)
        return style.norm(x, name="embedding", scale=self.scale, dtype=precision)
