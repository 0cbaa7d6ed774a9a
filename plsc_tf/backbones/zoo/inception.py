"""Inception v1, v2 and v4; v3 and Inception-ResNet v2 come from Keras."""

from keras import layers

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import conv_norm_relu, dropout

# The tables list layers in order. "|" separates the branches of a module, "," the steps
# of a branch, and "+" two parallel steps at its end. "224 1x7" is a convolution with
# 224 filters; "halve" means stride 2, "valid" no padding, and "reduce" both. "avg" and
# "max_same" are 3 x 3 poolings with stride 1 and padding, "max" has stride 2 and no
# padding, and "pool 3" has stride 2 and padding.
_STEM = {
    "pool_2a": "pool 3",
    "conv_2b": "64 1",
    "conv_2c": "192 3",
    "pool_3a": "pool 3",
}
# Szegedy et al. 2014, arXiv:1409.4842, table 1; `slim/nets/inception_v1.py`, which has
# 3 x 3 instead of 5 x 5 convolutions and batch normalization.
V1 = {
    "conv_1a": "64 7 halve",
    **_STEM,
    "mixed_3b": "64 1 | 96 1, 128 3 | 16 1, 32 3 | max_same, 32 1",
    "mixed_3c": "128 1 | 128 1, 192 3 | 32 1, 96 3 | max_same, 64 1",
    "pool_4a": "pool 3",
    "mixed_4b": "192 1 | 96 1, 208 3 | 16 1, 48 3 | max_same, 64 1",
    "mixed_4c": "160 1 | 112 1, 224 3 | 24 1, 64 3 | max_same, 64 1",
    "mixed_4d": "128 1 | 128 1, 256 3 | 24 1, 64 3 | max_same, 64 1",
    "mixed_4e": "112 1 | 144 1, 288 3 | 32 1, 64 3 | max_same, 64 1",
    "mixed_4f": "256 1 | 160 1, 320 3 | 32 1, 128 3 | max_same, 128 1",
    "pool_5a": "pool 2",
    "mixed_5b": "256 1 | 160 1, 320 3 | 32 1, 128 3 | max_same, 128 1",
    "mixed_5c": "384 1 | 192 1, 384 3 | 48 1, 128 3 | max_same, 128 1",
}
# BN-Inception: Ioffe and Szegedy 2015, arXiv:1502.03167, appendix;
# `slim/nets/inception_v2.py`, whose first convolution has a bias instead of batch
# normalization.
V2 = {
    "conv_1a": "separable",
    **_STEM,
    "mixed_3b": "64 1 | 64 1, 64 3 | 64 1, 96 3, 96 3 | avg, 32 1",
    "mixed_3c": "64 1 | 64 1, 96 3 | 64 1, 96 3, 96 3 | avg, 64 1",
    "mixed_4a": "128 1, 160 3 halve | 64 1, 96 3, 96 3 halve | pool 3",
    "mixed_4b": "224 1 | 64 1, 96 3 | 96 1, 128 3, 128 3 | avg, 128 1",
    "mixed_4c": "192 1 | 96 1, 128 3 | 96 1, 128 3, 128 3 | avg, 128 1",
    "mixed_4d": "160 1 | 128 1, 160 3 | 128 1, 160 3, 160 3 | avg, 96 1",
    "mixed_4e": "96 1 | 128 1, 192 3 | 160 1, 192 3, 192 3 | avg, 96 1",
    "mixed_5a": "128 1, 192 3 halve | 192 1, 256 3, 256 3 halve | pool 3",
    "mixed_5b": "352 1 | 192 1, 320 3 | 160 1, 224 3, 224 3 | avg, 128 1",
    "mixed_5c": "352 1 | 192 1, 320 3 | 192 1, 224 3, 224 3 | max_same, 128 1",
}
# Szegedy et al. 2016, arXiv:1602.07261, figures 3 to 9.
_A = "96 1 | 64 1, 96 3 | 64 1, 96 3, 96 3 | avg, 96 1"
_B = (
    "384 1 | 192 1, 224 1x7, 256 7x1 | 192 1, 192 7x1, 224 1x7, 224 7x1, 256 1x7 | "
    "avg, 128 1"
)
_C = (
    "256 1 | 384 1, 256 1x3 + 256 3x1 | 384 1, 448 3x1, 512 1x3, 256 1x3 + 256 3x1 | "
    "avg, 256 1"
)
V4 = {
    "conv_1a": "32 3 reduce",
    "conv_2a": "32 3 valid",
    "conv_2b": "64 3",
    "mixed_3a": "max | 96 3 reduce",
    "mixed_4a": "64 1, 96 3 valid | 64 1, 64 1x7, 64 7x1, 96 3 valid",
    "mixed_5a": "192 3 reduce | max",
    **{f"mixed_5{letter}": _A for letter in "bcde"},
    "mixed_6a": "384 3 reduce | 192 1, 224 3, 256 3 reduce | max",
    **{f"mixed_6{letter}": _B for letter in "bcdefgh"},
    "mixed_7a": "192 1, 192 3 reduce | 256 1, 256 1x7, 320 7x1, 320 3 reduce | max",
    **{f"mixed_7{letter}": _C for letter in "bcd"},
}
_POOLINGS = {
    "avg": (layers.AveragePooling2D, 1, "same"),
    "max_same": (layers.MaxPooling2D, 1, "same"),
    "max": (layers.MaxPooling2D, 2, "valid"),
    "pool": (layers.MaxPooling2D, 2, "same"),
}
_STRIDES = {"halve": {"stride": 2}, "valid": {"padding": "valid"}}
_STRIDES["reduce"] = _STRIDES["halve"] | _STRIDES["valid"]


def inception(table: dict, image, arguments: NetworkArguments):
    """Builds a network from a table such as `V1`; dropout is 0.2.

    Returns:
        `[N, features]` tensor.
    """
    x = image
    for name, text in table.items():
        if "|" not in text:
            x = _step(x, text, name)
            continue
        parts = enumerate(text.split(" | "))
        branches = [_branch(x, steps, f"{name}_branch{k}") for k, steps in parts]
        x = layers.Concatenate(name=name)(branches)
    x = layers.GlobalAveragePooling2D(name="global_pool")(x)
    return dropout(x, arguments, 0.2)


def _branch(x, steps, name):
    for index, step in enumerate(steps.split(", ")):
        x = _step(x, step, f"{name}_{index}")
    return x


def _step(x, step, name):
    if " + " in step:
        parts = enumerate(step.split(" + "))
        sides = [_step(x, side, f"{name}_{i}") for i, side in parts]
        return layers.Concatenate(name=name)(sides)
    word, *rest = step.split()
    if word == "separable":
        options = {"padding": "same", "depth_multiplier": 8, "activation": "relu"}
        return layers.SeparableConv2D(64, 7, strides=2, name=name, **options)(x)
    if word in _POOLINGS:
        kind, stride, padding = _POOLINGS[word]
        size = int(rest[0]) if rest else 3
        return kind(size, stride, padding=padding, name=name)(x)
    size = [int(side) for side in rest[0].split("x")]
    options = _STRIDES[rest[1]] if rest[1:] else {}
    return conv_norm_relu(x, int(word), (size[0], size[-1]), name=name, **options)
