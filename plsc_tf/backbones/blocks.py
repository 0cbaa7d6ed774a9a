"""Blocks: the layers and residual blocks that the networks share.

All convolutions pad symmetrically, as Paddle and PyTorch do. Keras's own "same"
puts the odd pixel of a stride 2 convolution at the bottom and right, which would
shift the features of imported weights by one pixel.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import keras
from keras import layers

Initializer = keras.initializers.Initializer
POOLINGS = ("flatten", "gap", "gdc")


def fan_out_normal(fan_in: int, fan_out: int) -> Initializer:
    """N(0, 2 / fan_out): Paddle's Xavier with fan_in=0, He's initializer by output.

    Source: PLSC v0.1.1 `plsc/models/resnet.py`; He et al. 2015, arXiv:1502.01852.
    """
    return keras.initializers.RandomNormal(stddev=math.sqrt(2.0 / fan_out))


def tenth_normal(fan_in: int, fan_out: int) -> Initializer:
    """N(0, 0.1²), the convolutions of arcface_torch's `iresnet.py`."""
    return keras.initializers.RandomNormal(stddev=0.1)


def fan_in_uniform(fan_in: int, fan_out: int) -> Initializer:
    """U(−1/√fan_in, 1/√fan_in), PyTorch's default for linear layers."""
    limit = 1.0 / math.sqrt(fan_in)
    return keras.initializers.RandomUniform(-limit, limit)


def zeros(fan_in: int, fan_out: int) -> Initializer:
    """All zeros."""
    return keras.initializers.Zeros()


@dataclass(frozen=True)
class Style:
    """How one family of networks makes its layers.

    An initializer is a function of (fan_in, fan_out), so that every layer gets one of
    its own: Keras initializers repeat their numbers when an instance is shared.

    Args:
        epsilon: of batch normalization.
        conv_initializer: of convolution kernels.
        dense_initializer: of the embedding layer's kernel.
        bias_initializer: of the embedding layer's bias.
        one_slope: whether PReLU learns one slope per layer (Paddle's mode "all")
            instead of one per channel.
        synchronized: whether batch statistics are those of all replicas.
    """

    epsilon: float
    conv_initializer: Callable[[int, int], Initializer]
    dense_initializer: Callable[[int, int], Initializer]
    bias_initializer: Callable[[int, int], Initializer] = zeros
    one_slope: bool = False
    synchronized: bool = False

    def conv(self, x, filters: int, size: int, *, stride: int = 1, name: str):
        """[N, h, w, c] to [N, ⌈h/stride⌉, ⌈w/stride⌉, filters], without a bias.

        Args:
            x: [N, h, w, c] tensor.
            filters: output channels.
            size: odd kernel size in pixels.
            stride: step in pixels.
            name: the layer's name.
        """
        if size == 1 and stride > 1:
            # Equal to the strided convolution, whose gradient oneDNN (TF 2.17, fewer
            # than 16 channels) gets wrong by writing outside its memory.
            x = layers.MaxPooling2D(1, strides=stride, name=f"{name}_pixels")(x)
            stride = 1
        x, padding = _pad(x, size, stride, name)
        area = size * size
        initializer = self.conv_initializer(area * x.shape[-1], area * filters)
        return layers.Conv2D(
            filters,
            size,
            strides=stride,
            padding=padding,
            use_bias=False,
            kernel_initializer=initializer,
            name=name,
        )(x)

    def depthwise(self, x, size: int | None, *, stride: int = 1, name: str):
        """Depthwise convolution with the padding of `conv`, without a bias.

        Its fan_out counts all channels, as the sources' initializers do. Without a
        size it has one weight per pixel and channel, [N, h, w, c] to [N, 1, 1, c]:
        GDConv, Chen et al. 2018, arXiv:1804.07573, section 3.2.
        """
        kernel, padding = x.shape[1:3], "valid"
        if size is not None:
            kernel = (size, size)
            x, padding = _pad(x, size, stride, name)
        area = math.prod(kernel)
        return layers.DepthwiseConv2D(
            kernel,
            strides=stride,
            padding=padding,
            use_bias=False,
            depthwise_initializer=self.conv_initializer(area, area * x.shape[-1]),
            name=name,
        )(x)

    def norm(self, x, *, name: str, scale: bool = True, dtype: str | None = None):
        """Batch normalization over the last axis.

        The momentum is Paddle's and Keras's 0.9, which PyTorch writes as 0.1.
        """
        return layers.BatchNormalization(
            momentum=0.9,
            epsilon=self.epsilon,
            scale=scale,
            synchronized=self.synchronized,
            dtype=dtype,
            name=name,
        )(x)

    def prelu(self, x, *, name: str):
        """PReLU that starts at the slope 0.25, as in Paddle and PyTorch."""
        return layers.PReLU(
            alpha_initializer=keras.initializers.Constant(0.25),
            shared_axes=[1, 2, 3] if self.one_slope else [1, 2],
            name=name,
        )(x)

    def norm_prelu(self, x, *, name: str, number: int | str = ""):
        """Batch normalization, then PReLU."""
        x = self.norm(x, name=f"{name}_bn{number}")
        return self.prelu(x, name=f"{name}_prelu{number}")

    def embedding(self, x, size: int, dropout: float, pooling="flatten", **dense):
        """[N, h, w, c] features to [N, size] embeddings.

        Args:
            x: [N, h, w, c] tensor.
            size: numbers per embedding.
            dropout: share of the features dropped before the dense layer.
            pooling: "flatten" keeps every pixel (arcface_torch, PLSC), "gap" averages
                the pixels, "gdc" weights them by a global depthwise convolution
                (MobileFaceNet).
            **dense: options of `embedding_dense`.
        """
        if pooling not in POOLINGS:
            raise ValueError(
                f"head must be one of {', '.join(POOLINGS)}. Received: head={pooling!r}"
            )
        if pooling == "gap":
            x = layers.GlobalAveragePooling2D(name="pool")(x)
        else:
            if pooling == "gdc":
                x = self.depthwise(x, None, name="pool_depthwise")
                x = self.norm(x, name="pool_bn")
            x = layers.Flatten(name="flatten")(x)
        if dropout:
            x = layers.Dropout(dropout, name="dropout")(x)
        return self.embedding_dense(x, size, **dense)

    def embedding_dense(self, x, size: int, bias: bool = True, scale: bool = True):
        """[N, features] to [N, size] embeddings: a dense layer and its normalization.

        Both compute in the precision of their weights, so in float32 under mixed
        policies, as arcface_torch has it.

        Args:
            x: [N, features] tensor.
            size: numbers per embedding.
            bias: whether the dense layer has a bias.
            scale: whether the batch normalization learns a scale; arcface_torch fixes
                it at 1.
        """
        precision = keras.config.dtype_policy().variable_dtype
        fans = (x.shape[-1], size)
        x = layers.Dense(
            size,
            use_bias=bias,
            kernel_initializer=self.dense_initializer(*fans),
            bias_initializer=self.bias_initializer(*fans),
            dtype=precision,
            name="embedding_dense",
        )(x)
        return self.norm(x, name="embedding", scale=scale, dtype=precision)


def _pad(x, size: int, stride: int, name: str):
    """Returns x, padded where Keras's "same" would not be symmetric, and the mode."""
    if stride == 1 or size == 1:
        return x, "same"
    return layers.ZeroPadding2D(size // 2, name=f"{name}_pad")(x), "valid"


def basic_block(x, filters: int, stride: int, style: Style, name: str):
    """BN – conv 3×3 – BN – PReLU – conv 3×3 (stride) – BN, plus the shortcut.

    Source: PLSC `bottleneck_block` for 50 layers; arcface_torch `IBasicBlock`.

    Args:
        x: [N, h, w, c] tensor.
        filters: channels of the output.
        stride: of the second convolution.
        style: how the layers are made.
        name: the block's name, before the layers' names.
    """
    y = style.norm(x, name=f"{name}_bn1")
    y = style.conv(y, filters, 3, name=f"{name}_conv1")
    y = style.norm_prelu(y, name=name, number=2)
    y = style.conv(y, filters, 3, stride=stride, name=f"{name}_conv2")
    y = style.norm(y, name=f"{name}_bn3")
    return _add_shortcut(x, y, stride, style, name)


def relu_block(x, filters: int, stride: int, style: Style, name: str):
    """Conv 3×3 (stride) – BN – ReLU – conv 3×3 – BN, plus the shortcut, then ReLU.

    Source: He et al. 2015, arXiv:1512.03385, figure 5 left. Args as basic_block.
    """
    y = style.conv(x, filters, 3, stride=stride, name=f"{name}_conv1")
    y = layers.ReLU(name=f"{name}_relu1")(style.norm(y, name=f"{name}_bn1"))
    y = style.norm(style.conv(y, filters, 3, name=f"{name}_conv2"), name=f"{name}_bn2")
    y = _add_shortcut(x, y, stride, style, name)
    return layers.ReLU(name=f"{name}_relu2")(y)


def bottleneck_block(x, filters: int, stride: int, style: Style, name: str):
    """BN – conv 1×1 – BN – PReLU – conv 3×3 – BN – PReLU – conv 1×1 (stride) – BN.

    The first two convolutions have filters // 4 channels; the shortcut is added.
    Source: PLSC v0.1.1 `bottleneck_block` for 101 and 152 layers. Args as basic_block.
    """
    y = style.norm(x, name=f"{name}_bn1")
    y = style.conv(y, filters // 4, 1, name=f"{name}_conv1")
    y = style.norm_prelu(y, name=name, number=2)
    y = style.conv(y, filters // 4, 3, name=f"{name}_conv2")
    y = style.norm_prelu(y, name=name, number=3)
    y = style.conv(y, filters, 1, stride=stride, name=f"{name}_conv3")
    y = style.norm(y, name=f"{name}_bn4")
    return _add_shortcut(x, y, stride, style, name)


def _add_shortcut(x, y, stride: int, style: Style, name: str):
    if stride != 1 or x.shape[-1] != y.shape[-1]:
        x = style.conv(x, y.shape[-1], 1, stride=stride, name=f"{name}_shortcut_conv")
        x = style.norm(x, name=f"{name}_shortcut_bn")
    return layers.Add(name=f"{name}_add")([x, y])


def inverted_residual(x, filters: int, expansion: int, stride: int, style: Style, name):
    """Conv 1×1 – BN – PReLU – depthwise 3×3 – BN – PReLU – conv 1×1 – BN.

    The input is added where stride and channels leave its shape alone.
    Source: Sandler et al. 2018, arXiv:1801.04381, with PReLU as in arXiv:1804.07573.

    Args:
        x: [N, h, w, c] tensor.
        filters: channels of the output.
        expansion: channels inside, as a multiple of c.
        stride: of the depthwise convolution.
        style: how the layers are made.
        name: the block's name, before the layers' names.
    """
    channels = x.shape[-1]
    y = style.conv(x, channels * expansion, 1, name=f"{name}_conv1")
    y = style.norm_prelu(y, name=name, number=1)
    y = style.depthwise(y, 3, stride=stride, name=f"{name}_depthwise")
    y = style.norm_prelu(y, name=name, number=2)
    y = style.conv(y, filters, 1, name=f"{name}_conv3")
    y = style.norm(y, name=f"{name}_bn3")
    if stride == 1 and filters == channels:
        y = layers.Add(name=f"{name}_add")([x, y])
    return y
