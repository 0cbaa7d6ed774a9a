"""Sequential networks: LeNet, CifarNet, AlexNet, OverFeat and VGG.

The first dense layer covers the whole last feature map, so its number of weights
depends on the image size.
"""

from keras import initializers, layers

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import LocalResponseNormalization, dropout

# The tables list layers in order. "conv1 64 11 4 valid" has 64 filters of 11 x 11
# pixels, stride 4 (default 1) and "valid" padding (default "same"). "pool1 3" is 3 x 3
# max pooling with stride 2, "norm1" is local response normalization, and "fc6 4096" is
# a dense layer.
# LeCun et al. 1998, as in TensorFlow's first MNIST tutorial and `slim/nets/lenet.py`.
LENET = "conv1 32 5, pool1 2, conv2 64 5, pool2 2, flatten, fc3 1024, dropout"
# cuda-convnet's layers for CIFAR-10: `slim/nets/cifarnet.py`.
CIFARNET = (
    "conv1 64 5, pool1 2, norm1, conv2 64 5, norm2, pool2 2, flatten, "
    "fc3 384, dropout, fc4 192"
)
ALEXNET_V2 = (
    "conv1 64 11 4 valid, pool1 3, conv2 192 5, pool2 3, conv3 384 3, conv4 384 3, "
    "conv5 256 3, pool5 3, flatten, fc6 4096, dropout6, fc7 4096, dropout7"
)
OVERFEAT = (
    "conv1 64 11 4 valid, pool1 2, conv2 256 5 1 valid, pool2 2, conv3 512 3, "
    "conv4 1024 3, conv5 1024 3, pool5 2, flatten, "
    "fc6 3072, dropout6, fc7 4096, dropout7"
)
VGG_A = (
    "conv1 64 3, pool1 2, conv2 128 3, pool2 2, conv3 256 3, conv4 256 3, pool4 2, "
    "conv5 512 3, conv6 512 3, pool6 2, conv7 512 3, conv8 512 3, pool8 2, flatten, "
    "fc6 4096, dropout6, fc7 4096, dropout7"
)


def plain(table: str, initial: dict, image, arguments: NetworkArguments):
    """Builds a network from a table; dropout is 0.5.

    Args:
        table: a table such as `LENET`.
        initial: initial values. "conv" and "fc" are standard deviations of the weights
            (Glorot initialization if missing); "bias" is the bias of the dense layers.
        image: symbolic images.
        arguments: the network's common arguments.

    Returns:
        `[N, features]` tensor.
    """
    x = image
    for step in table.split(", "):
        name, *numbers = step.split()
        kind = name.rstrip("0123456789")
        if kind == "dropout":
            x = dropout(x, arguments, 0.5, name)
        else:
            numbers = [int(n) if n.isdecimal() else n for n in numbers]
            x = _LAYERS[kind](name, initial, *numbers)(x)
    return x


def _conv(name, initial, filters, size, stride=1, padding="same"):  # noqa: PLR0913
    kernel = "glorot_uniform"
    if "conv" in initial:
        kernel = initializers.TruncatedNormal(stddev=initial["conv"])
    return layers.Conv2D(filters, size, stride, padding, **_relu(name, kernel))


def _dense(name, initial, size):
    # Create it even if it's replaced below: each initializer draws a seed, and one
    # fewer would change the results of seeded runs.
    kernel = initializers.GlorotUniform()
    if "fc" in initial:
        kernel = initializers.TruncatedNormal(stddev=initial["fc"])
    bias = initializers.Constant(initial.get("bias", 0.0))
    return layers.Dense(size, bias_initializer=bias, **_relu(name, kernel))


def _relu(name, kernel):
    """Returns options that all layers with weights share."""
    return {"name": name, "activation": "relu", "kernel_initializer": kernel}


_LAYERS = {
    "conv": _conv,
    "fc": _dense,
    "pool": lambda name, _, size: layers.MaxPooling2D(size, 2, name=name),
    "norm": lambda name, _: LocalResponseNormalization(name=name),
    "flatten": lambda name, _: layers.Flatten(name=name),
}
