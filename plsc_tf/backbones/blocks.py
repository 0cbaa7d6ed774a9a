"""Layers and residual blocks that the networks share.

In face networks, convolutions pad symmetrically, as in Paddle and PyTorch. Keras's
"same" padding puts the extra pixel of a convolution with stride 2 at the bottom and
right, which would shift the features of imported weights by one pixel.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from keras import config, initializers, layers

from plsc_tf.requirements import require_one_of

Initializer = initializers.Initializer
POOLINGS = ("flatten", "gap", "gdc")


def fan_out_normal(fan_in: int, fan_out: int) -> Initializer:
    """Returns N(0, 2 / fan_out): Paddle's Xavier with fan_in=0, He's with fan_out.

    Source: PLSC v0.1.1 `plsc/models/resnet.py`; He et al. 2015, arXiv:1502.01852.
    """
    return initializers.RandomNormal(stddev=math.sqrt(2.0 / fan_out))


def tenth_normal(fan_in: int, fan_out: int) -> Initializer:
    """Returns N(0, 0.1²), used for convolutions in arcface_torch's `iresnet.py`."""
    return initializers.RandomNormal(stddev=0.1)


def fan_in_uniform(fan_in: int, fan_out: int) -> Initializer:
    """Returns U(−1/√fan_in, 1/√fan_in), PyTorch's default for linear layers."""
    limit = 1.0 / math.sqrt(fan_in)
    return initializers.RandomUniform(-limit, limit)


def zeros(fan_in: int, fan_out: int) -> Initializer:
    """Returns an initializer of zeros."""
    return initializers.Zeros()


@dataclass(frozen=True)
class Style:
    """Creates the layers of one family of networks.

    Initializers are given as functions of (fan_in, fan_out) to create a separate one
    for each layer: a shared Keras initializer would repeat its numbers.

    Args:
        epsilon: epsilon of batch normalization.
        conv_initializer: creates the initializer of a convolution's kernel; by default
            `fan_out_normal`.
        dense_initializer: creates the initializer of the embedding layer's kernel; by
            default `fan_out_normal`.
        bias_initializer: creates the initializer of the embedding layer's bias.
        one_slope: whether PReLU learns one slope per layer (Paddle's mode "all")
            instead of one per channel.
    """

    epsilon: float
    conv_initializer: Callable[[int, int], Initializer] = fan_out_normal
    dense_initializer: Callable[[int, int], Initializer] = fan_out_normal
    bias_initializer: Callable[[int, int], Initializer] = zeros
    one_slope: bool = False

    def conv(self, x, filters: int, size: int, *, stride: int = 1, name: str):
        """Applies a convolution without a bias.

        Args:
            x: `[N, h, w, c]` tensor.
            filters: output channels.
            size: kernel size in pixels, odd.
            stride: stride in pixels.
            name: the layer's name.

        Returns:
            `[N, ⌈h/stride⌉, ⌈w/stride⌉, filters]` tensor.
        """
        if size == 1 and stride > 1:
            # Equivalent to a strided convolution, but avoids its gradient in oneDNN
            # (TF 2.17, fewer than 16 channels), which writes out of bounds.
            x = layers.MaxPooling2D(1, strides=stride, name=f"{name}_pixels")(x)
            stride = 1
        x, options = _padded(x, size, stride, name)
        area = size * size
        initial = self.conv_initializer(area * x.shape[-1], area * filters)
        return layers.Conv2D(filters, size, kernel_initializer=initial, **options)(x)

    def depthwise(self, x, size: int | None, *, stride=1, multiplier=1, name: str):
        """Applies a depthwise convolution, padded like `conv`, without a bias.

        Each channel has `multiplier` outputs. The initializer's fan_out counts all
        channels, as in the original networks. If `size` is None, the kernel has one
        weight per pixel and channel and maps `[N, h, w, c]` to `[N, 1, 1, c]` (GDConv,
        Chen et al. 2018, arXiv:1804.07573, section 3.2).
        """
        kernel, options = x.shape[1:3], {"use_bias": False, "name": name}
        if size is not None:
            kernel = (size, size)
            x, options = _padded(x, size, stride, name)
        area = math.prod(kernel)
        initial = self.conv_initializer(area, area * x.shape[-1])
        options |= {"depthwise_initializer": initial, "depth_multiplier": multiplier}
        return layers.DepthwiseConv2D(kernel, **options)(x)

    def norm(self, x, *, name: str, scale: bool = True, dtype: str | None = None):
        """Applies batch normalization over the last axis.

        The momentum is 0.9 in the convention of Paddle and Keras, 0.1 in PyTorch's.
        """
        return layers.BatchNormalization(
            momentum=0.9, epsilon=self.epsilon, scale=scale, dtype=dtype, name=name
        )(x)

    def prelu(self, x, *, name: str):
        """Applies PReLU with an initial slope of 0.25, as in Paddle and PyTorch."""
        slope = initializers.Constant(0.25)
        shared = [1, 2, 3] if self.one_slope else [1, 2]
        return layers.PReLU(slope, shared_axes=shared, name=name)(x)

    def norm_prelu(self, x, *, name: str, number: int | str = ""):
        """Applies batch normalization, followed by PReLU."""
        x = self.norm(x, name=f"{name}_bn{number}")
        return self.prelu(x, name=f"{name}_prelu{number}")

    def embedding(self, x, size: int, dropout: float, pooling="flatten", **dense):
        """Maps features `[N, h, w, c]` to embeddings `[N, size]`.

        Args:
            x: `[N, h, w, c]` tensor.
            size: embedding size.
            dropout: dropout rate before the dense layer.
            pooling: "flatten" keeps every pixel (arcface_torch, PLSC), "gap" averages
                the pixels, and "gdc" weights them by a global depthwise convolution
                (MobileFaceNet).
            **dense: options of `embedding_dense`.
        """
        require_one_of(POOLINGS, head=pooling)
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
        """Applies a dense layer and batch normalization to get the embeddings.

        Both compute in the precision of their weights. This is float32 under mixed
        policies, as in arcface_torch.

        Args:
            x: `[N, features]` tensor.
            size: embedding size.
            bias: whether the dense layer has a bias.
            scale: whether the batch normalization learns a scale; arcface_torch fixes
                it at 1.
        """
        precision = config.dtype_policy().variable_dtype
        fans = (x.shape[-1], size)
        options = {"use_bias": bias, "dtype": precision, "name": "embedding_dense"}
        options["kernel_initializer"] = self.dense_initializer(*fans)
        options["bias_initializer"] = self.bias_initializer(*fans)
        x = layers.Dense(size, **options)(x)
        return self.norm(x, name="embedding", scale=scale, dtype=precision)


def _padded(x, size: int, stride: int, name: str):
    """Returns x, padded if Keras's "same" would be asymmetric, and layer options."""
    padding = "same" if stride == 1 or size == 1 else "valid"
    if padding == "valid":
        x = layers.ZeroPadding2D(size // 2, name=f"{name}_pad")(x)
    return x, {"strides": stride, "padding": padding, "use_bias": False, "name": name}


def basic_block(x, filters: int, stride: int, style: Style, name: str):
    """BN – conv 3×3 – BN – PReLU – conv 3×3 (stride) – BN, plus the shortcut.

    Source: PLSC `bottleneck_block` for 50 layers; arcface_torch `IBasicBlock`.

    Args:
        x: `[N, h, w, c]` tensor.
        filters: output channels.
        stride: stride of the second convolution.
        style: creates the layers.
        name: the block's name, a prefix of its layers' names.
    """
    y = style.norm(x, name=f"{name}_bn1")
    y = style.conv(y, filters, 3, name=f"{name}_conv1")
    y = style.norm_prelu(y, name=name, number=2)
    y = style.conv(y, filters, 3, stride=stride, name=f"{name}_conv2")
    y = style.norm(y, name=f"{name}_bn3")
    return _add_shortcut(x, y, stride, style, name)


def relu_block(x, filters: int, stride: int, style: Style, name: str):
    """Conv 3×3 (stride) – BN – ReLU – conv 3×3 – BN, plus the shortcut – ReLU.

    Source: He et al. 2015, arXiv:1512.03385, figure 5 left. The arguments are those of
    `basic_block`.
    """
    y = style.conv(x, filters, 3, stride=stride, name=f"{name}_conv1")
    y = layers.ReLU(name=f"{name}_relu1")(style.norm(y, name=f"{name}_bn1"))
    y = style.norm(style.conv(y, filters, 3, name=f"{name}_conv2"), name=f"{name}_bn2")
    y = _add_shortcut(x, y, stride, style, name)
    return layers.ReLU(name=f"{name}_relu2")(y)


def bottleneck_block(x, filters: int, stride: int, style: Style, name: str):
    """BN – conv 1×1 – BN – PReLU – conv 3×3 – BN – PReLU – conv 1×1 (stride) – BN.

    The first two convolutions have filters // 4 channels; the shortcut is added.
    Source: PLSC v0.1.1 `bottleneck_block` for 101 and 152 layers. The arguments are
    those of `basic_block`.
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

    The input is added if the output has the same shape.
    Source: Sandler et al. 2018, arXiv:1801.04381, with PReLU as in arXiv:1804.07573.

    Args:
        x: `[N, h, w, c]` tensor.
        filters: output channels.
        expansion: inner channels, as a multiple of c.
        stride: stride of the depthwise convolution.
        style: creates the layers.
        name: the block's name, a prefix of its layers' names.
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
