"""Inception v1, v2 and v4; v3 and Inception-ResNet v2 are Keras's."""

import keras
from keras import layers

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import Normed, dropout, finish

# Filters of each module of v1: 1×1; 1×1 and 3×3; 1×1 and 3×3; after pooling. A number
# alone is max pooling of that size with stride 2. Source: arXiv:1409.4842, table 1.
V1 = {
    "mixed_3b": (64, 96, 128, 16, 32, 32),
    "mixed_3c": (128, 128, 192, 32, 96, 64),
    "pool_4a": 3,
    "mixed_4b": (192, 96, 208, 16, 48, 64),
    "mixed_4c": (160, 112, 224, 24, 64, 64),
    "mixed_4d": (128, 128, 256, 24, 64, 64),
    "mixed_4e": (112, 144, 288, 32, 64, 64),
    "mixed_4f": (256, 160, 320, 32, 128, 128),
    "pool_5a": 2,
    "mixed_5b": (256, 160, 320, 32, 128, 128),
    "mixed_5c": (384, 192, 384, 48, 128, 128),
}
# The same of v2, with two convolutions of 3×3 in the third branch; without the first
# branch and what follows pooling a module halves the picture. Source:
# arXiv:1502.03167, appendix, as in `slim/nets/inception_v2.py`.
V2 = {
    "mixed_3b": (64, 64, 64, 64, 96, 32),
    "mixed_3c": (64, 64, 96, 64, 96, 64),
    "mixed_4a": (None, 128, 160, 64, 96, None),
    "mixed_4b": (224, 64, 96, 96, 128, 128),
    "mixed_4c": (192, 96, 128, 96, 128, 128),
    "mixed_4d": (160, 128, 160, 128, 160, 96),
    "mixed_4e": (96, 128, 192, 160, 192, 96),
    "mixed_5a": (None, 128, 192, 192, 256, None),
    "mixed_5b": (352, 192, 320, 160, 224, 128),
    "mixed_5c": (352, 192, 320, 192, 224, 128),
}
# Branches of v4: what is done one after the other. (filters, size) is a convolution,
# "avg" is average pooling of 3×3, "max" is max pooling of 3×3 with stride 2, a trailing
# 2 or "valid" is a stride of 2 (without padding) or no padding; a list of steps at the
# end is a fork. Source: arXiv:1602.07261, figures 3 to 9.
V4_STEM = {
    "mixed_3a": (("max",), ((96, 3, 2),)),
    "mixed_4a": (
        ((64, 1), (96, 3, "valid")),
        ((64, 1), (64, (1, 7)), (64, (7, 1)), (96, 3, "valid")),
    ),
    "mixed_5a": (((192, 3, 2),), ("max",)),
}
V4_A = (
    ((96, 1),),
    ((64, 1), (96, 3)),
    ((64, 1), (96, 3), (96, 3)),
    ("avg", (96, 1)),
)
V4_REDUCTION_A = (((384, 3, 2),), ((192, 1), (224, 3), (256, 3, 2)), ("max",))
V4_B = (
    ((384, 1),),
    ((192, 1), (224, (1, 7)), (256, (7, 1))),
    ((192, 1), (192, (7, 1)), (224, (1, 7)), (224, (7, 1)), (256, (1, 7))),
    ("avg", (128, 1)),
)
V4_REDUCTION_B = (
    ((192, 1), (192, 3, 2)),
    ((256, 1), (256, (1, 7)), (320, (7, 1)), (320, 3, 2)),
    ("max",),
)
V4_C = (
    ((256, 1),),
    ((384, 1), [(256, (1, 3)), (256, (3, 1))]),
    ((384, 1), (448, (3, 1)), (512, (1, 3)), [(256, (1, 3)), (256, (3, 1))]),
    ("avg", (256, 1)),
)
V4 = {
    **V4_STEM,
    **{f"mixed_5{letter}": V4_A for letter in "bcde"},
    "mixed_6a": V4_REDUCTION_A,
    **{f"mixed_6{letter}": V4_B for letter in "bcdefgh"},
    "mixed_7a": V4_REDUCTION_B,
    **{f"mixed_7{letter}": V4_C for letter in "bcd"},
}
NET = Normed()


def inception_v1(
    arguments: NetworkArguments,
    *,
    batch_norm_momentum: float = 0.99,
    name: str = "inception_v1",
) -> keras.Model:
    """GoogLeNet with batch normalisation, as TF-Slim has it, without side classifiers.

    Source: Szegedy et al. 2014, arXiv:1409.4842; `slim/nets/inception_v1.py`, whose
    5×5 convolutions are 3×3. Dropout is 0.2.

    Args:
        arguments: what all networks are asked for.
        batch_norm_momentum: of all batch normalisations.
        name: the model's name.
    """
    image = keras.Input(arguments.image_shape, name="image")
    x = _stem(NET.conv(image, 64, 7, stride=2, name="conv_1a"))
    for module, filters in V1.items():
        if isinstance(filters, int):
            x = _max_pool(x, filters, module)
            continue
        straight, *pair, narrow, wide, after = filters
        plan = (
            ((straight, 1),),
            ((pair[0], 1), (pair[1], 3)),
            ((narrow, 1), (wide, 3)),
            ("max_same", (after, 1)),
        )
        x = _module(x, plan, module)
    x = _pooled(x, arguments)
    return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)


def inception_v2(
    arguments: NetworkArguments,
    *,
    batch_norm_momentum: float = 0.99,
    name: str = "inception_v2",
) -> keras.Model:
    """BN-Inception, as TF-Slim has it.

    Source: Ioffe and Szegedy 2015, arXiv:1502.03167; `slim/nets/inception_v2.py`,
    whose first convolution has a bias instead of batch normalisation. Dropout is 0.2.

    Args:
        arguments: what all networks are asked for.
        batch_norm_momentum: of all batch normalisations.
        name: the model's name.
    """
    image = keras.Input(arguments.image_shape, name="image")
    x = layers.SeparableConv2D(
        64,
        7,
        strides=2,
        padding="same",
        depth_multiplier=8,
        activation="relu",
        name="conv_1a",
    )(image)
    x = _stem(x)
    for module, filters in V2.items():
        straight, first, second, narrow, wide, after = filters
        if straight is None:
            plan = (
                ((first, 1), (second, 3, "halve")),
                ((narrow, 1), (wide, 3), (wide, 3, "halve")),
                ("max_halve",),
            )
        else:
            pooling = "max_same" if module == "mixed_5c" else "avg"
            plan = (
                ((straight, 1),),
                ((first, 1), (second, 3)),
                ((narrow, 1), (wide, 3), (wide, 3)),
                (pooling, (after, 1)),
            )
        x = _module(x, plan, module)
    x = _pooled(x, arguments)
    return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)


def inception_v4(
    arguments: NetworkArguments,
    *,
    batch_norm_momentum: float = 0.99,
    name: str = "inception_v4",
) -> keras.Model:
    """Inception v4. Source: Szegedy et al. 2016, arXiv:1602.07261. Dropout is 0.2.

    Args:
        arguments: what all networks are asked for.
        batch_norm_momentum: of all batch normalisations.
        name: the model's name.
    """
    image = keras.Input(arguments.image_shape, name="image")
    x = NET.conv(image, 32, 3, stride=2, padding="valid", name="conv_1a")
    x = NET.conv(x, 32, 3, padding="valid", name="conv_2a")
    x = NET.conv(x, 64, 3, name="conv_2b")
    for module, plan in V4.items():
        x = _module(x, plan, module)
    x = _pooled(x, arguments)
    return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)


def _stem(x):
    """What v1 and v2 have between the first convolution and the first module."""
    x = _max_pool(x, 3, "pool_2a")
    x = NET.conv(x, 64, 1, name="conv_2b")
    x = NET.conv(x, 192, 3, name="conv_2c")
    return _max_pool(x, 3, "pool_3a")


def _max_pool(x, size, name):
    return layers.MaxPooling2D(size, 2, padding="same", name=name)(x)


def _pooled(x, arguments):
    x = layers.GlobalAveragePooling2D(name="global_pool")(x)
    return dropout(x, arguments, 0.2)


def _module(x, plan, name):
    """Branches side by side, concatenated.

    Args:
        x: [N, h, w, c] tensor.
        plan: the branches, see `V4_A`.
        name: of the module.
    """
    ends = []
    for number, branch in enumerate(plan):
        y, label = x, f"{name}_branch{number}"
        for index, step in enumerate(branch):
            y = _step(y, step, f"{label}_{index}")
        ends.append(y)
    return layers.Concatenate(name=name)(ends)


def _step(x, step, name):
    if isinstance(step, list):
        forks = [_step(x, one, f"{name}_{i}") for i, one in enumerate(step)]
        return layers.Concatenate(name=name)(forks)
    if step == "avg":
        return layers.AveragePooling2D(3, 1, padding="same", name=name)(x)
    if step == "max":
        return layers.MaxPooling2D(3, 2, name=name)(x)
    if step == "max_same":
        return layers.MaxPooling2D(3, 1, padding="same", name=name)(x)
    if step == "max_halve":
        return _max_pool(x, 3, name)
    filters, size, *how = step
    options = {
        (): {},
        (2,): {"stride": 2, "padding": "valid"},
        ("valid",): {"padding": "valid"},
        ("halve",): {"stride": 2},
    }[tuple(how)]
    return NET.conv(x, filters, size, name=name, **options)
