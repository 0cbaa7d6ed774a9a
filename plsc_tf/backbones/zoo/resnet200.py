"""ResNet v1 and v2 of 200 layers, in the form that Keras gives to those up to 152."""

import keras
from keras import layers

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import dropout, finish

# Filters and blocks of each stage: He et al. 2016, arXiv:1603.05027, section 5.
STAGES = ((64, 3), (128, 24), (256, 36), (512, 3))
EPSILON = 1.001e-5


def resnet_v1_200(
    arguments: NetworkArguments,
    *,
    batch_norm_momentum: float = 0.99,
    name: str = "resnet_v1_200",
) -> keras.Model:
    """Bottlenecks with batch normalisation behind each convolution.

    As `keras.applications.ResNet152`, the stride is in a stage's first convolution.
    Source: He et al. 2015, arXiv:1512.03385, with the stages of arXiv:1603.05027.

    Args:
        arguments: what all networks are asked for; there is no dropout.
        batch_norm_momentum: of all batch normalisations.
        name: the model's name.
    """
    image = keras.Input(arguments.image_shape, name="image")
    x = _norm_relu(_stem_conv(image), "conv1")
    x = _stem_pool(x)
    for stage, (filters, depth) in enumerate(STAGES, start=2):
        for block in range(1, depth + 1):
            stride = 2 if block == 1 and stage > 2 else 1
            x = _block_v1(x, filters, stride, block == 1, f"conv{stage}_block{block}")
    x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
    x = dropout(x, arguments, 0.0)
    return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)


def resnet_v2_200(
    arguments: NetworkArguments,
    *,
    batch_norm_momentum: float = 0.99,
    name: str = "resnet_v2_200",
) -> keras.Model:
    """Bottlenecks with batch normalisation in front of each convolution.

    As `keras.applications.ResNet152V2`, the stride is in the last block of a stage.
    Source: He et al. 2016, arXiv:1603.05027.

    Args:
        arguments: what all networks are asked for; there is no dropout.
        batch_norm_momentum: of all batch normalisations.
        name: the model's name.
    """
    image = keras.Input(arguments.image_shape, name="image")
    x = _stem_pool(_stem_conv(image))
    for stage, (filters, depth) in enumerate(STAGES, start=2):
        for block in range(1, depth + 1):
            stride = 2 if block == depth and stage < 5 else 1
            x = _block_v2(x, filters, stride, block == 1, f"conv{stage}_block{block}")
    x = _norm_relu(x, "post")
    x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
    x = dropout(x, arguments, 0.0)
    return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)


def _block_v1(x, filters, stride, first, name):
    shortcut = x
    if first:
        shortcut = _conv(x, 4 * filters, 1, f"{name}_0", stride)
        shortcut = _norm(shortcut, f"{name}_0")
    x = _norm_relu(_conv(x, filters, 1, f"{name}_1", stride), f"{name}_1")
    x = _norm_relu(_conv(x, filters, 3, f"{name}_2"), f"{name}_2")
    x = _norm(_conv(x, 4 * filters, 1, f"{name}_3"), f"{name}_3")
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return layers.ReLU(name=f"{name}_out")(x)


def _block_v2(x, filters, stride, first, name):
    active = _norm_relu(x, f"{name}_preact")
    shortcut = x
    if first:
        shortcut = _conv(active, 4 * filters, 1, f"{name}_0", stride)
    elif stride > 1:
        shortcut = layers.MaxPooling2D(1, stride, name=f"{name}_0_pool")(x)
    y = _conv(active, filters, 1, f"{name}_1", bias=False)
    y = _norm_relu(y, f"{name}_1")
    y = layers.ZeroPadding2D(1, name=f"{name}_2_pad")(y)
    y = _conv(y, filters, 3, f"{name}_2", stride, "valid", bias=False)
    y = _norm_relu(y, f"{name}_2")
    y = _conv(y, 4 * filters, 1, f"{name}_3")
    return layers.Add(name=f"{name}_out")([shortcut, y])


def _stem_conv(image):
    x = layers.ZeroPadding2D(3, name="conv1_pad")(image)
    return _conv(x, 64, 7, "conv1", 2, "valid")


def _stem_pool(x):
    x = layers.ZeroPadding2D(1, name="pool1_pad")(x)
    return layers.MaxPooling2D(3, 2, name="pool1_pool")(x)


def _conv(x, filters, size, name, stride=1, padding="same", *, bias=True):  # noqa: PLR0913
    return layers.Conv2D(
        filters,
        size,
        strides=stride,
        padding=padding,
        use_bias=bias,
        kernel_initializer=keras.initializers.HeNormal(),
        name=f"{name}_conv",
    )(x)


def _norm(x, name):
    return layers.BatchNormalization(epsilon=EPSILON, name=f"{name}_bn")(x)


def _norm_relu(x, name):
    return layers.ReLU(name=f"{name}_relu")(_norm(x, name))
