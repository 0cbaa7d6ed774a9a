"""ResNet v1 and v2 with 200 layers, built like Keras's ResNets with up to 152."""

from keras import layers

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import conv, dropout, norm

# Filters and blocks of each stage: He et al. 2016, arXiv:1603.05027, section 5.
STAGES = ((64, 3), (128, 24), (256, 36), (512, 3))
EPSILON = 1.001e-5


def resnet200(version: int, image, arguments: NetworkArguments):
    """Builds a ResNet of bottlenecks; v2 normalizes before each convolution.

    As in `keras.applications`, a stage's stride is in its first convolution in v1 and
    in its last block in v2. Sources: He et al. 2015, arXiv:1512.03385, with the stages
    of arXiv:1603.05027.

    Returns:
        `[N, features]` tensor.
    """
    x = layers.ZeroPadding2D(3, name="conv1_pad")(image)
    x = _conv(x, 64, 7, "conv1", stride=2, padding="valid")
    if version == 1:
        x = _norm_relu(x, "conv1")
    x = layers.ZeroPadding2D(1, name="pool1_pad")(x)
    x = layers.MaxPooling2D(3, 2, name="pool1_pool")(x)
    block = {1: _block_v1, 2: _block_v2}[version]
    for stage, (filters, depth) in enumerate(STAGES, start=2):
        strided = {1: 1 if stage > 2 else 0, 2: depth if stage < 5 else 0}[version]
        for number in range(1, depth + 1):
            stride = 2 if number == strided else 1
            x = block(x, filters, stride, number == 1, f"conv{stage}_block{number}")
    if version == 2:  # noqa: PLR2004
        x = _norm_relu(x, "post")
    x = layers.GlobalAveragePooling2D(name="avg_pool")(x)
    return dropout(x, arguments, 0.0)


def _block_v1(x, filters, stride, first, name):
    shortcut = x
    if first:
        shortcut = _conv(x, 4 * filters, 1, f"{name}_0", stride=stride)
        shortcut = norm(shortcut, f"{name}_0", EPSILON)
    x = _norm_relu(_conv(x, filters, 1, f"{name}_1", stride=stride), f"{name}_1")
    x = _norm_relu(_conv(x, filters, 3, f"{name}_2"), f"{name}_2")
    x = norm(_conv(x, 4 * filters, 1, f"{name}_3"), f"{name}_3", EPSILON)
    x = layers.Add(name=f"{name}_add")([shortcut, x])
    return layers.ReLU(name=f"{name}_out")(x)


def _block_v2(x, filters, stride, first, name):
    active = _norm_relu(x, f"{name}_preact")
    shortcut = x
    if first:
        shortcut = _conv(active, 4 * filters, 1, f"{name}_0", stride=stride)
    elif stride > 1:
        shortcut = layers.MaxPooling2D(1, stride, name=f"{name}_0_pool")(x)
    y = _norm_relu(_conv(active, filters, 1, f"{name}_1", bias=False), f"{name}_1")
    y = layers.ZeroPadding2D(1, name=f"{name}_2_pad")(y)
    options = {"stride": stride, "padding": "valid", "bias": False}
    y = _norm_relu(_conv(y, filters, 3, f"{name}_2", **options), f"{name}_2")
    y = _conv(y, 4 * filters, 1, f"{name}_3")
    return layers.Add(name=f"{name}_out")([shortcut, y])


def _conv(x, filters, size, name, bias=True, **options):
    return conv(x, filters, size, bias=bias, name=f"{name}_conv", **options)


def _norm_relu(x, name):
    return layers.ReLU(name=f"{name}_relu")(norm(x, name, EPSILON))
