"""MobileFaceNet: a face network of a million parameters for phones and CPUs."""

import keras

from plsc_tf.backbones import blocks
from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.blocks import Style
from plsc_tf.backbones.embedding import EmbeddingLayers

# Table 1 of the paper: expansion, channels, blocks, stride of the first block.
BOTTLENECKS = (
    (2, 64, 5, 2),
    (4, 128, 1, 2),
    (2, 128, 6, 1),
    (4, 128, 1, 2),
    (2, 128, 2, 1),
)
TOTAL_STRIDE = 16


def mobilefacenet(
    arguments: NetworkArguments, *, name: str = "mobilefacenet"
) -> keras.Model:
    """The primary MobileFaceNet of the paper.

    With 128 numbers out it trains 1,003,136 parameters; 993,344 are left, the paper's
    0.99 M and 4.0 MB, once batch normalisation is folded into the kernels.

    Source: Chen et al. 2018, arXiv:1804.07573, table 1. Not arcface_torch's "mbf",
    which doubles the channels and other details. The paper leaves the initialisation
    open: N(0, 2/fan_out) is what insightface's MXNet and PyTorch forms share. The
    global depthwise convolution is as large as the last feature map, 7×7 for images
    of 112×112.

    Args:
        arguments: what all networks are asked for.
        name: the model's name.
    """
    arguments.require_pixels(TOTAL_STRIDE, name)
    style = Style(
        epsilon=1e-5,
        conv_initializer=blocks.fan_out_normal,
        dense_initializer=blocks.fan_out_normal,
        synchronized=arguments.synchronized_batch_norm,
    )
    image = keras.Input(arguments.image_shape, name="image")
    x = style.conv(image, 64, 3, stride=2, name="stem_conv")
    x = style.norm_prelu(x, name="stem")
    x = style.depthwise(x, 3, name="stem_depthwise")
    x = style.norm_prelu(x, name="stem_depthwise")
    for stage, (expansion, filters, depth, stride) in enumerate(BOTTLENECKS, start=1):
        for index in range(depth):
            label = f"stage{stage}_block{index + 1}"
            step = stride if index == 0 else 1
            x = blocks.inverted_residual(x, filters, expansion, step, style, label)
    x = style.conv(x, 512, 1, name="features_conv")
    x = style.norm_prelu(x, name="features")
    embedding = EmbeddingLayers(
        arguments.embedding_size,
        dropout=arguments.dropout_or(0.0),
        pooling="gdc",
        use_bias=False,
    )
    return keras.Model(image, embedding(x, style), name=name)
