"""The plain residual network, in the small size that two CPU cores can train."""

from collections.abc import Sequence

import keras
from keras import layers

from plsc_tf.backbones import blocks
from plsc_tf.backbones.arguments import NetworkArguments, positive_integer
from plsc_tf.backbones.blocks import Style
from plsc_tf.backbones.embedding import EmbeddingLayers
from plsc_tf.backbones.resnet import stage_filters


def small_resnet(
    arguments: NetworkArguments,
    *,
    depths: Sequence[int] = (1, 1, 1, 1),
    width: int | Sequence[int] = 32,
    stem_stride: int = 1,
    head: str = "flatten",
    name: str = "resnet10",
) -> keras.Model:
    """He et al.'s basic blocks behind a 3×3 stem, with embedding layers for faces.

    Both convolutions of a stage's first block see the halved picture, unlike
    IResNet's, which makes a step of the same width about twice as fast on a CPU.
    Source: He et al. 2015, arXiv:1512.03385, section 4.2. Dropout is 0.4.

    Args:
        arguments: what all networks are asked for.
        depths: blocks per stage; each stage halves height and width.
        width: channels of the first stage, doubled from stage to stage, or the
            channels of every stage.
        stem_stride: stride of the first convolution.
        head: "flatten", "gap" or "gdc", see `EmbeddingLayers`.
        name: the model's name.
    """
    depths, filters = stage_filters(depths, width)
    stem_stride = positive_integer(stem_stride, "stem_stride")
    arguments.require_pixels(stem_stride * 2 ** len(depths), name)
    style = Style(
        epsilon=1e-5,
        conv_initializer=blocks.fan_out_normal,
        dense_initializer=blocks.fan_in_uniform,
        synchronized=arguments.synchronized_batch_norm,
    )
    embedding = EmbeddingLayers(
        arguments.embedding_size,
        dropout=arguments.dropout_or(0.4),
        pooling=head,
        use_bias=False,
        scale=False,
    )
    image = keras.Input(arguments.image_shape, name="image")
    x = style.conv(image, filters[0], 3, stride=stem_stride, name="stem_conv")
    x = layers.ReLU(name="stem_relu")(style.norm(x, name="stem_bn"))
    for stage, (depth, channels) in enumerate(
        zip(depths, filters, strict=True), start=1
    ):
        for index in range(depth):
            stride = 2 if index == 0 else 1
            label = f"stage{stage}_block{index + 1}"
            x = blocks.relu_block(x, channels, stride, style, label)
    return keras.Model(image, embedding(x, style), name=name)
