"""Convolutional networks for faces: PLSC's ResNet, IResNet, ResNet10, MobileFaceNet.

The residual networks consist of a 3×3 convolution, stages of residual blocks that each
start with stride 2, and a dense embedding layer over the whole last feature map.
"""

from collections.abc import Sequence
from functools import partial

from keras import layers

from plsc_tf.backbones import blocks
from plsc_tf.backbones.arguments import NetworkArguments, positive_integer
from plsc_tf.requirements import require, require_one_of

PLSC_DEPTHS = {
    50: (3, 4, 14, 3),
    100: (3, 13, 30, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
NARROW = (64, 128, 256, 512)
WIDE = (256, 512, 1024, 2048)
# The three versions of PLSC's networks with more than 100 layers.
PLSC_VARIANTS = {
    "v0.2": (blocks.basic_block, NARROW),
    "v0.1": (blocks.bottleneck_block, NARROW),
    "readme": (blocks.bottleneck_block, WIDE),
}
# Table 1 of MobileFaceNet: expansion, channels, blocks, stride of the first block.
MOBILE_BOTTLENECKS = (
    (2, 64, 5, 2),
    (4, 128, 1, 2),
    (2, 128, 6, 1),
    (4, 128, 1, 2),
    (2, 128, 2, 1),
)


def resnet(depth: int, image, arguments: NetworkArguments, *, variant: str = "v0.2"):
    """Builds PLSC's face ResNet.

    Source: PaddlePaddle/PLSC `plsc/models/resnet.py`. Batch normalization has an
    epsilon of 2e-5, PReLU has one slope per layer, dropout is 0.4, and kernels are
    initialized with N(0, 2/fan_out).

    Args:
        depth: number of layers: 50, 100, 101 or 152.
        image: symbolic images.
        arguments: the network's common arguments.
        variant: version of the networks with 101 and 152 layers. "v0.2" has basic
            blocks with 64…512 channels, which PLSC adopted in March 2020 ("align to
            mxnet"). "v0.1", of releases 0.1.0 and 0.1.1, has bottlenecks with 64…512
            outer channels and a quarter as many inner channels. "readme", the example
            in the manual, has bottlenecks with 256…2048 channels. The variant makes no
            difference for 50 and 100 layers.

    Returns:
        `[N, embedding_size]` tensor.
    """
    require_one_of(PLSC_VARIANTS, variant=variant)
    # PLSC's own condition: bottlenecks start at 101 layers.
    block, filters = PLSC_VARIANTS[variant if depth > 100 else "v0.2"]
    arguments.require_pixels(16)
    style = blocks.Style(epsilon=2e-5, one_slope=True)
    x = style.conv(image, 64, 3, name="stem_conv")
    x = style.norm_prelu(x, name="stem")
    x = _stages(x, block, PLSC_DEPTHS[depth], filters, style)
    x = style.norm(x, name="features_bn")
    return style.embedding(x, arguments.embedding_size, arguments.dropout_or(0.4))


def residual(  # noqa: PLR0913 - options of the family
    is_iresnet: bool,
    image,
    arguments: NetworkArguments,
    *,
    depths: Sequence[int] = (2, 2, 2, 2),
    width: int | Sequence[int] = 64,
    stem_stride: int = 1,
    head: str = "flatten",
):
    """Builds arcface_torch's IResNet or a smaller ResNet with any depth and width.

    IResNet: deepinsight/insightface `recognition/arcface_torch/backbones/iresnet.py`.
    Batch normalization has an epsilon of 1e-5, PReLU has one slope per channel, and
    dropout is 0. Convolutions are initialized with N(0, 0.1²), the dense layer with
    PyTorch's default. The scale of the last batch normalization is fixed at 1. The
    dense layer's inputs are in the order (height, width, channels), unlike PyTorch's
    (channels, height, width).

    The smaller network has He et al.'s basic blocks after a 3×3 stem (arXiv:1512.03385,
    section 4.2). Unlike in IResNet, the first convolution of a stage already has stride
    2, which makes a step about twice as fast on a CPU. Dropout is 0.4.

    Args:
        is_iresnet: True for IResNet, False for the smaller network.
        image: symbolic images.
        arguments: the network's common arguments.
        depths: blocks per stage; each stage halves height and width.
        width: channels of the first stage, doubled in each later stage, or a list of
            the channels of all stages.
        stem_stride: stride of the first convolution; 2 quarters the amount of
            computation.
        head: "flatten", "gap" or "gdc"; see `Style.embedding`.

    Returns:
        `[N, embedding_size]` tensor.
    """
    depths, filters, stride = _stage_filters(depths, width, stem_stride, arguments)
    style = blocks.Style(
        epsilon=1e-5,
        conv_initializer=blocks.tenth_normal if is_iresnet else blocks.fan_out_normal,
        dense_initializer=blocks.fan_in_uniform,
        bias_initializer=blocks.fan_in_uniform if is_iresnet else blocks.zeros,
    )
    x = style.conv(image, filters[0], 3, stride=stride, name="stem_conv")
    if is_iresnet:
        x = style.norm_prelu(x, name="stem")
        x = _stages(x, blocks.basic_block, depths, filters, style)
        x = style.norm(x, name="features_bn")
    else:
        x = layers.ReLU(name="stem_relu")(style.norm(x, name="stem_bn"))
        x = _stages(x, blocks.relu_block, depths, filters, style)
    size, dropout = arguments.embedding_size, 0.0 if is_iresnet else 0.4
    share = arguments.dropout_or(dropout)
    return style.embedding(x, size, share, head, bias=is_iresnet, scale=False)


iresnet = partial(residual, True)
small_resnet = partial(residual, False, depths=(1, 1, 1, 1), width=32)


def mobilefacenet(wide: bool, image, arguments: NetworkArguments):
    """Builds the paper's primary MobileFaceNet, for phones and CPUs, or a wide one.

    With an embedding size of 128, it has 1,003,136 trainable parameters. After folding
    batch normalization into the kernels, 993,344 remain: the paper's 0.99 M and 4.0 MB.

    Source: Chen et al. 2018, arXiv:1804.07573, table 1. The paper does not specify the
    initialization; N(0, 2/fan_out) is used by both insightface's MXNet and PyTorch
    versions. The global depthwise convolution is as large as the last feature map, 7×7
    for 112×112 images.

    Args:
        wide: whether to build arcface_torch's "mbf" (`backbones/mobilefacenet.py`):
            bottlenecks have twice the channels outside and as many inside, and the
            stem's second convolution is in 64 groups of two channels.
        image: symbolic images.
        arguments: the network's common arguments.

    Returns:
        `[N, embedding_size]` tensor.
    """
    arguments.require_pixels(16)
    style = blocks.Style(epsilon=1e-5)
    scale = 2 if wide else 1
    x = style.conv(image, 64 * scale, 3, stride=2, name="stem_conv")
    x = style.norm_prelu(x, name="stem")
    x = style.depthwise(x, 3, multiplier=scale, name="stem_depthwise")
    if wide:  # add up the outputs of both channels of a group
        sides = layers.Reshape((-1, 2, 2), name="stem_pairs")(x)
        sides = [layers.Cropping2D(((0, 0), (i, 1 - i)))(sides) for i in range(2)]
        x = layers.Reshape((*x.shape[1:3], 128), name="stem_sum")(layers.Add()(sides))
    x = style.norm_prelu(x, name="stem_depthwise")
    for stage, row in enumerate(MOBILE_BOTTLENECKS, start=1):
        expansion, filters, depth, stride = row
        for index in range(depth):
            label = f"stage{stage}_block{index + 1}"
            step, inner = 1 if index else stride, expansion // scale
            x = blocks.inverted_residual(x, filters * scale, inner, step, style, label)
    x = style.conv(x, 512, 1, name="features_conv")
    x = style.norm_prelu(x, name="features")
    size, share = arguments.embedding_size, arguments.dropout_or(0.0)
    return style.embedding(x, size, share, "gdc", bias=False)


def _stages(x, block, depths, filters, style):
    """Applies the stages of residual blocks; a stage's first block has stride 2."""
    stages = zip(depths, filters, strict=True)
    for stage, (depth, channels) in enumerate(stages, start=1):
        for index in range(depth):
            label = f"stage{stage}_block{index + 1}"
            x = block(x, channels, 1 if index else 2, style, label)
    return x


def _stage_filters(depths, width, stem_stride, arguments):
    """Checks a family's options; returns depths, channels per stage and stem stride."""
    depths = _integers(depths, "depths")
    # A forged checkpoint could build a network for hours.
    require(sum(depths) <= 300, "depths must be at most 300 blocks", depths=depths)
    if isinstance(width, Sequence):
        filters = _integers(width, "width")
    else:
        first = positive_integer(width, "width")
        filters = tuple(first * 2**stage for stage in range(len(depths)))
    rule = "width must be one number, or as long as depths (one number per stage)"
    require(len(filters) == len(depths), rule, depths=depths, width=width)
    stride = positive_integer(stem_stride, "stem_stride")
    arguments.require_pixels(stride * 2 ** len(depths))
    return depths, filters, stride


def _integers(values: Sequence[int], name: str) -> tuple[int, ...]:
    fits = isinstance(values, Sequence) and not isinstance(values, str) and values
    rule = f"{name} must have one positive integer per stage, for example (2, 2, 2, 2)"
    require(fits, rule, value=repr(values))
    return tuple(positive_integer(value, name) for value in values)
