"""Residual networks for faces: PLSC's ResNet and arcface_torch's IResNet.

Both are a 3×3 convolution that keeps all pixels, stages of pre-normalised residual
blocks of which each starts with stride 2, and a dense embedding layer over the whole
last feature map. They differ in initialisation, PReLU slopes, epsilon and dropout.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import keras

from plsc_tf.backbones import blocks
from plsc_tf.backbones.arguments import NetworkArguments, positive_integer
from plsc_tf.backbones.blocks import Style
from plsc_tf.backbones.embedding import EmbeddingLayers

PLSC_DEPTHS = {
    50: (3, 4, 14, 3),
    100: (3, 13, 30, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
NARROW = (64, 128, 256, 512)
WIDE = (256, 512, 1024, 2048)
# The three forms in which PLSC had its networks of more than 100 layers.
PLSC_VARIANTS = {
    "v0.2": ("basic", NARROW),
    "v0.1": ("bottleneck", NARROW),
    "readme": ("bottleneck", WIDE),
}


@dataclass(frozen=True)
class ResidualPlan:
    """The shape of a residual network.

    Args:
        depths: blocks per stage.
        filters: output channels per stage.
        stem_filters: channels of the first convolution.
        stem_stride: stride of the first convolution.
        block: "basic" or "bottleneck".
    """

    depths: tuple[int, ...]
    filters: tuple[int, ...]
    stem_filters: int
    stem_stride: int = 1
    block: str = "basic"

    @property
    def total_stride(self) -> int:
        """Pixels of the image per pixel of the last feature map."""
        return self.stem_stride * 2 ** len(self.depths)


def resnet(
    layers: int,
    arguments: NetworkArguments,
    *,
    variant: str = "v0.2",
    name: str = "resnet",
) -> keras.Model:
    """PLSC's face ResNet.

    Source: PaddlePaddle/PLSC `plsc/models/resnet.py`. Batch normalisation has epsilon
    2e-5, PReLU one slope per layer, dropout is 0.4, kernels start at N(0, 2/fan_out).

    Args:
        layers: 50, 100, 101 or 152.
        arguments: what all networks are asked for.
        variant: matters for 101 and 152 layers. "v0.2": basic blocks with 64…512
            channels, what PLSC settled on in March 2020 ("align to mxnet"); "v0.1":
            what releases 0.1.0 and 0.1.1 build, bottlenecks with 64…512 channels
            outside and a quarter inside; "readme": the bottlenecks with 256…2048
            channels of the manual's example. All agree for 50 layers.
        name: the model's name.
    """
    if variant not in PLSC_VARIANTS:
        raise ValueError(
            f"variant must be one of {', '.join(PLSC_VARIANTS)}. "
            f"Received: variant={variant!r}"
        )
    # PLSC's own condition: bottlenecks start at 101 layers.
    block, filters = PLSC_VARIANTS[variant if layers > 100 else "v0.2"]
    style = Style(
        epsilon=2e-5,
        conv_initializer=blocks.fan_out_normal,
        dense_initializer=blocks.fan_out_normal,
        one_slope=True,
        synchronized=arguments.synchronized_batch_norm,
    )
    embedding = EmbeddingLayers(
        arguments.embedding_size, dropout=arguments.dropout_or(0.4)
    )
    plan = ResidualPlan(PLSC_DEPTHS[layers], filters, stem_filters=64, block=block)
    return _residual_network(plan, arguments, style, embedding, name)


def iresnet(
    arguments: NetworkArguments,
    *,
    depths: Sequence[int] = (2, 2, 2, 2),
    width: int | Sequence[int] = 64,
    stem_stride: int = 1,
    head: str = "flatten",
    name: str = "iresnet",
) -> keras.Model:
    """arcface_torch's IResNet, of any depth and width.

    Source: deepinsight/insightface `recognition/arcface_torch/backbones/iresnet.py`.
    Batch normalisation has epsilon 1e-5, PReLU one slope per channel, dropout is 0,
    convolutions start at N(0, 0.1²), the dense layer as PyTorch's, and the scale of
    the last batch normalisation is fixed at 1. The dense layer sees pixels in the
    order (height, width, channels), PyTorch's in (channels, height, width).

    Args:
        arguments: what all networks are asked for.
        depths: blocks per stage; each stage halves height and width.
        width: channels of the first stage, doubled from stage to stage, or the
            channels of every stage.
        stem_stride: stride of the first convolution; 2 quarters the work.
        head: "flatten", "gap" or "gdc", see `EmbeddingLayers`.
        name: the model's name.
    """
    depths, filters = stage_filters(depths, width)
    style = Style(
        epsilon=1e-5,
        conv_initializer=blocks.tenth_normal,
        dense_initializer=blocks.fan_in_uniform,
        bias_initializer=blocks.fan_in_uniform,
        synchronized=arguments.synchronized_batch_norm,
    )
    embedding = EmbeddingLayers(
        arguments.embedding_size,
        dropout=arguments.dropout_or(0.0),
        pooling=head,
        scale=False,
    )
    stride = positive_integer(stem_stride, "stem_stride")
    plan = ResidualPlan(depths, filters, stem_filters=filters[0], stem_stride=stride)
    return _residual_network(plan, arguments, style, embedding, name)


def stage_filters(depths, width) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Checks `depths` and turns `width` into the channels of each stage."""
    depths = _integers(depths, "depths")
    if isinstance(width, Sequence):
        filters = _integers(width, "width")
    else:
        first = positive_integer(width, "width")
        filters = tuple(first * 2**stage for stage in range(len(depths)))
    if len(filters) != len(depths):
        raise ValueError(
            "width needs one number per stage of depths, or a single number. "
            f"Received: depths={depths}, width={width}"
        )
    return depths, filters


def _integers(values: Sequence[int], name: str) -> tuple[int, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise ValueError(
            f"{name} must hold one positive integer per stage, as in (2, 2, 2, 2). "
            f"Received: {name}={values!r}"
        )
    return tuple(positive_integer(value, name) for value in values)


def _residual_network(
    plan: ResidualPlan,
    arguments: NetworkArguments,
    style: Style,
    embedding: EmbeddingLayers,
    name: str,
) -> keras.Model:
    """Stem, stages and embedding layers as one Keras model."""
    arguments.require_pixels(plan.total_stride, name)
    block = {"basic": blocks.basic_block, "bottleneck": blocks.bottleneck_block}
    image = keras.Input(arguments.image_shape, name="image")
    x = style.conv(
        image, plan.stem_filters, 3, stride=plan.stem_stride, name="stem_conv"
    )
    x = style.norm_prelu(x, name="stem")
    stages = zip(plan.depths, plan.filters, strict=True)
    for stage, (depth, filters) in enumerate(stages, start=1):
        for index in range(depth):
            stride = 2 if index == 0 else 1
            label = f"stage{stage}_block{index + 1}"
            x = block[plan.block](x, filters, stride, style, label)
    x = style.norm(x, name="features_bn")
    return keras.Model(image, embedding(x, style), name=name)
