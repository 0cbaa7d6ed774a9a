"""`build` and `list`: names, arguments, shapes, precision, saving, gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from plsc_tf import backbones
from tests.marks import slow

SMALL = {"depths": (1, 1), "width": 8, "image_shape": (16, 16, 3), "embedding_size": 8}


def small(**changes):
    return backbones.build("iresnet", **{**SMALL, **changes})


def images(network, number=2):
    shape = (number, *network.input_shape[1:])
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_list_names_a_family_by_size():
    found = [name for name in backbones.list() if name.startswith("iresnet")]
    assert found == [f"iresnet{size}" for size in ("", 10, 18, 34, 50, 100, 200)]


@pytest.mark.parametrize(
    ("spelling", "name", "least"),
    [
        *((one, "resnet50", 16) for one in ("ResNet50", "RestNet50", "RESNET-50")),
        ("r18", "iresnet18", 16),
        ("mobile facenet", "mobilefacenet", 16),
        ("vit-t", "vit_t", 9),
    ],
)
def test_any_spelling_and_the_smallest_images(spelling, name, least):
    message = f"'{name}' requires images of at least {least} x {least} .*{least - 1}"
    with pytest.raises(ValueError, match=message):
        backbones.build(spelling, image_shape=(least - 1, 20, 3))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("iresnt50", {}, r"name='iresnt50'.*'iresnet50'.*from_user"),
        (keras.Sequential, {}, "from_user"),
        ("iresnet", {"depth": (1, 1)}, r"depth=.*Did you mean 'depths'\?"),
        ("mobilefacenet", {"width": 3}, r"'mobilefacenet' has no .*: none"),
        ("resnet101", {"variant": "v3"}, r"v0.2, v0.1, readme.*'v3'"),
        ("iresnet", {"embedding_size": 0}, "embedding_size must be a positive .*=0"),
        ("iresnet", {"embedding_size": 1.5}, "must be a positive integer.*=1.5"),
        ("iresnet", {"image_shape": (16, 16)}, r"three positive integers.*\(16, 16\)"),
        ("iresnet", {"image_shape": 16}, r"three positive integers.*=16"),
        ("iresnet", {"image_shape": (3, 8, 8)}, r"unlike in PLSC.*to \(8, 8, 3\)"),
        ("iresnet", {"dropout": 1.0}, r"dropout must be in \[0, 1\).*=1.0"),
        ("iresnet", {"depths": ()}, r"depths must have"),
        ("iresnet", {"depths": (299, 2)}, r"at most 300 blocks.*=\(299, 2\)"),
        ("iresnet", {"depths": 3}, r"depths must have.*=3"),
        ("iresnet", {"width": (8, 6, 2)}, r"one number per stage.*=\(8, 6, 2\)"),
        ("iresnet", {"head": "max"}, r"head must be one of flatten, gap, gdc.*'max'"),
        ("iresnet", {"stem_stride": 0}, r"stem_stride must be a positive integer"),
    ],
)
def test_wrong_names_and_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        backbones.build(name, **options)


def test_odd_sizes_are_rounded_up():
    # 19 pixels: 10 after the first stage, 5 after the second.
    network = small(image_shape=(19, 17, 3))
    assert network.get_layer("features_bn").output.shape == (None, 5, 5, 16)


def test_stem_stride_and_width_per_stage():
    network = small(stem_stride=2, width=(4, 6))
    assert network.get_layer("stem_conv").output.shape == (None, 8, 8, 4)
    assert network.get_layer("features_bn").output.shape == (None, 2, 2, 6)


def rates(network):
    return [x.rate for x in network.layers if isinstance(x, keras.layers.Dropout)]


def test_dropout_defaults_to_the_networks_own(sketch):
    assert rates(sketch("resnet50")) == [0.4]
    assert rates(sketch("resnet10", dropout=0.0)) == []
    assert rates(small()) == []
    assert rates(small(dropout=0.3)) == [0.3]


ZOO = {"image_shape": (32, 32, 3), "batch_norm_momentum": 0.8}


@pytest.mark.parametrize(
    ("name", "options", "synchronized"),
    [
        ("iresnet", SMALL, False),
        ("iresnet", SMALL, True),
        ("mobilefacenet", {"image_shape": (16, 16, 3)}, True),
        ("mobilenet_v1_025", ZOO, True),
    ],
)
def test_every_batch_norm_is_as_asked(sketch, name, options, synchronized):
    network = sketch(name, synchronized_batch_norm=synchronized, **options)
    kind = keras.layers.BatchNormalization
    found = [layer for layer in network.layers if isinstance(layer, kind)]
    assert {layer.synchronized for layer in found} == {synchronized}
    if options is ZOO:
        assert {layer.momentum for layer in found} == {0.8}


def test_no_layer_carries_weight_decay():
    assert small().losses == []


@pytest.mark.parametrize(
    ("name", "head"), [("mixed_float16", "gdc"), ("mixed_bfloat16", "gap")]
)
def test_mixed_precision_keeps_float32_embeddings(set_policy, name, head):
    set_policy(name)
    network = small(head=head, depths=(1,))
    assert network.get_layer("stem_conv").compute_dtype == name.removeprefix("mixed_")
    assert network(images(network), training=True).dtype == tf.float32
    assert {weight.dtype for weight in network.trainable_weights} == {"float32"}


def test_a_float64_policy_is_float64_throughout(set_policy):
    set_policy("float64")
    network = small(depths=(1,))
    assert network(images(network)).dtype == tf.float64


@pytest.mark.parametrize(
    "name, options",
    [
        ("iresnet", {**SMALL, "head": "gap"}),
        ("mobilefacenet", {"image_shape": (32, 32, 3), "embedding_size": 8}),
        ("resnet10", {"image_shape": (16, 16, 3), "embedding_size": 8, "dropout": 0}),
        slow(
            "resnet101", {"image_shape": (16, 16, 3), "variant": "v0.1", "dropout": 0}
        ),
    ],
)
def test_gradients_reach_every_trainable_variable(name, options):
    keras.utils.set_random_seed(5)
    network = backbones.build(name, **options)
    x = images(network, number=4)
    # In inference mode, because batch statistics cancel the bias before them.
    with tf.GradientTape() as tape:
        embedding = tf.math.l2_normalize(network(x, training=False), axis=1)
        loss = tf.reduce_sum(embedding * embedding[::-1, ::-1])
    variables = network.trainable_variables
    gradients = tape.gradient(loss, variables)
    for variable, gradient in zip(variables, gradients, strict=True):
        assert gradient is not None, variable.path
        assert np.any(gradient), variable.path
