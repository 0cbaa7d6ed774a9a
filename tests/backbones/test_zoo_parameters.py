"""Parameter counts of the zoo, with the logits of 1,000 classes, as published."""

import math

import keras
import pytest

from plsc_tf.backbones.zoo.catalog import ENTRIES

# All parameters, with moving statistics: the tables of keras.io/api/applications.
KERAS = {
    "vgg_16": 138_357_544,
    "vgg_19": 143_667_240,
    "inception_v3": 23_851_784,
    "inception_resnet_v2": 55_873_736,
    "resnet_v1_50": 25_636_712,
    "resnet_v1_101": 44_707_176,
    "resnet_v1_152": 60_419_944,
    "resnet_v2_50": 25_613_800,
    "resnet_v2_101": 44_675_560,
    "resnet_v2_152": 60_380_648,
    "mobilenet_v1": 4_253_864,
    "mobilenet_v2": 3_538_984,
    "nasnet_mobile": 5_326_716,
    "nasnet_large": 88_949_818,
}
# Without logits, with moving statistics: the tests of TF-Slim, slim/nets/*_test.py.
SLIM = {"inception_v1": 5_607_184, "inception_v2": 10_173_112}
# Millions, and the digits that are published: slim/nets/mobilenet_v1.md and
# slim/README.md (MobileNets), arXiv:1707.07012 table 1 (NASNet-A 6 @ 768, 10 classes),
# arXiv:1712.00559 table 5 (PNASNet-5 mobile).
MILLIONS = {
    "mobilenet_v1_075": (2.59, 2),
    "mobilenet_v1_050": (1.34, 2),
    "mobilenet_v1_025": (0.47, 2),
    "mobilenet_v2_140": (6.1, 1),
    "nasnet_cifar": (3.3, 1),
    "pnasnet_mobile": (5.1, 1),
}


def counts(sketch, name, classes=1000, **arguments):
    network = sketch(name, **arguments)
    logits = (network.output_shape[1] + 1) * classes
    kinds = (network.trainable_weights, network.non_trainable_weights)
    trained, moving = (sum(math.prod(w.shape) for w in kind) for kind in kinds)
    return trained + logits, moving


def some_slow(names):
    """Parameters of a test: those of many layers, which take seconds, are slow."""
    large = ("_101", "_152", "nasnet_", "inception_resnet")
    return [
        pytest.param(name, marks=pytest.mark.slow)
        if any(part in name for part in large)
        else name
        for name in names
    ]


@pytest.mark.parametrize("name", some_slow(KERAS))
def test_as_keras_documents(sketch, name):
    assert sum(counts(sketch, name)) == KERAS[name]


@pytest.mark.parametrize("name", SLIM)
def test_as_the_tests_of_slim_say(sketch, name):
    assert sum(counts(sketch, name, classes=0)) == SLIM[name]


@pytest.mark.parametrize("name", some_slow(MILLIONS))
def test_as_the_papers_round_it(sketch, name):
    published, digits = MILLIONS[name]
    classes = 10 if name == "nasnet_cifar" else 1000
    trained, _ = counts(sketch, name, classes)
    assert round(trained / 1e6, digits) == pytest.approx(published, abs=0.05)


def test_inception_v4_has_the_parameters_of_pytorchs_but_for_unused_scales(sketch):
    # pretrained-models.pytorch and timm: 42,679,816 with a scale per channel.
    network = sketch("inception_v4")
    channels = sum(
        layer.moving_mean.shape[0]
        for layer in network.layers
        if isinstance(layer, keras.layers.BatchNormalization)
    )
    assert counts(sketch, "inception_v4")[0] + channels == 42_679_816


@pytest.mark.slow
def test_resnet_v1_200_has_the_parameters_of_pytorchs_and_keras_biases(sketch):
    # timm's resnet200: 64,673,832 without biases, which Keras's ResNets have.
    network = sketch("resnet_v1_200")
    biases = sum(
        layer.filters
        for layer in network.layers
        if isinstance(layer, keras.layers.Conv2D)
    )
    assert counts(sketch, "resnet_v1_200")[0] - biases == 64_673_832


@pytest.mark.slow
def test_resnet_v2_200_grows_from_152_by_its_blocks(sketch):
    # 16 blocks of the second stage more: two norms in front, of 4f and f, one of f, and
    # a bias of 4f in the last convolution.
    f = 128
    block = 4 * f * f + 9 * f * f + f * 4 * f + 2 * 4 * f + 2 * f + 2 * f + 4 * f
    grown = counts(sketch, "resnet_v2_152")[0] + 16 * block
    assert counts(sketch, "resnet_v2_200")[0] == grown


@pytest.mark.slow
def test_pnasnet_large_has_the_parameters_of_pytorchs(sketch):
    # pretrained-models.pytorch: 86,057,668.
    assert counts(sketch, "pnasnet_large")[0] == 86_057_668


def test_plain_networks_by_hand(sketch):
    # TensorFlow's MNIST tutorial, one channel: 832 + 51,264 + 3,212,288 + 10,250.
    found = counts(sketch, "lenet", 10, image_shape=(28, 28, 1))
    assert found == (3_274_634, 0)
    # 4,864 + 102,464 + 4,096·384 + 384 + 384·192 + 192 + 1,930.
    assert counts(sketch, "cifarnet", 10) == (1_756_426, 0)
    alexnet = 23_296 + 307_392 + 663_936 + 1_327_488 + 884_992
    alexnet += 5 * 5 * 256 * 4096 + 4096 + 4096 * 4096 + 4096 + 4_097_000
    assert counts(sketch, "alexnet_v2") == (alexnet, 0)
    overfeat = 23_296 + 409_856 + 1_180_160 + 4_719_616 + 9_438_208
    overfeat += 6 * 6 * 1024 * 3072 + 3072 + 3072 * 4096 + 4096 + 4_097_000
    assert counts(sketch, "overfeat") == (overfeat, 0)
    # Sermanet et al., arXiv:1312.6229, table 4: the fast model has 145 million.
    assert overfeat == pytest.approx(145e6, rel=0.01)
    # Simonyan & Zisserman, arXiv:1409.1556, table 2: A has 133 million.
    assert round(counts(sketch, "vgg_a")[0] / 1e6) == 133


def test_the_face_transformer_by_hand(sketch):
    # arcface_torch's vit_t: 12 x 12 patches of 9 x 9 pixels, 256 wide, 12 blocks.
    width, places = 256, 144
    block = 4 * width * width + width + 8 * width * width + 5 * width + 2 * 2 * width
    expected = 243 * width + width + places * width + 12 * block + 2 * width
    expected += places * width * width + 2 * width + width * 512 + 2 * 512
    assert counts(sketch, "vit_t", 0)[0] == expected


def test_every_name_is_checked_here():
    named = {*KERAS, *SLIM, *MILLIONS}
    named |= {"inception_v4", "resnet_v1_200", "resnet_v2_200", "pnasnet_large"}
    assert named | {"lenet", "cifarnet", "alexnet_v2", "overfeat", "vgg_a"} == set(
        ENTRIES
    )
