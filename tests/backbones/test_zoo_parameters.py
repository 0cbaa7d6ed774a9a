"""Parameter counts of the zoo, with the logits of 1,000 classes, as published."""

import keras
import pytest

from plsc_tf.backbones.zoo.catalog import ENTRIES
from tests.marks import slow

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
# Trainable ones, added up by hand but for PNASNet, of pretrained-models.pytorch.
TRAINED = {
    "pnasnet_large": 86_057_668,
    # 23,296 + 307,392 + 663,936 + 1,327,488 + 884,992, and 6,400·4,096 + 4,096 +
    # 4,096·4,096 + 4,096 + 4,097,000.
    "alexnet_v2": 50_303_912,
    # Sermanet et al., arXiv:1312.6229, table 4: the fast model has 145 million.
    # 23,296 + 409,856 + 1,180,160 + 4,719,616 + 9,438,208, and 36,864·3,072 + 3,072 +
    # 3,072·4,096 + 4,096 + 4,097,000.
    "overfeat": 145_704_424,
    # arcface_torch: 144 patches of 9 x 9 pixels, 256 wide: 243·w + w + 144·w, 12
    # blocks of 12·w² + 10·w, 2·w, and 144·w² + 2·w + 512·w + 2·512.
    "vit_t": 19_137_536,
}


def some_slow(names):
    """Parameters of a test: those of many layers, and repetitions, are slow."""
    large = ("_101", "_152", "nasnet_", "inception_resnet")
    large += ("vgg_19", "inception_v3", "resnet_v1_50", "v1_050", "v1_025")
    return [slow(n) if any(part in n for part in large) else n for n in names]


@pytest.mark.parametrize("name", some_slow(KERAS))
def test_as_keras_documents(counts, name):
    assert sum(counts(name, 1000)) == KERAS[name]


@pytest.mark.parametrize("name", SLIM)
def test_as_the_tests_of_slim_say(counts, name):
    assert sum(counts(name)) == SLIM[name]


@pytest.mark.parametrize("name", some_slow(MILLIONS))
def test_as_the_papers_round_it(counts, name):
    published, digits = MILLIONS[name]
    trained, _ = counts(name, 10 if name == "nasnet_cifar" else 1000)
    assert round(trained / 1e6, digits) == pytest.approx(published, abs=0.05)


@pytest.mark.parametrize("name", some_slow(TRAINED))
def test_trainable_ones_add_up(counts, name):
    assert counts(name, 0 if name == "vit_t" else 1000)[0] == TRAINED[name]


def total(network, kind, size):
    return sum(size(layer) for layer in network.layers if isinstance(layer, kind))


def test_inception_v4_has_pytorchs_parameters_but_for_unused_scales(sketches, counts):
    # pretrained-models.pytorch and timm: 42,679,816 with a scale per channel.
    norms = keras.layers.BatchNormalization
    scales = total(sketches("inception_v4"), norms, lambda x: x.moving_mean.shape[0])
    assert counts("inception_v4", 1000)[0] + scales == 42_679_816


@pytest.mark.slow
def test_resnet_v1_200_has_pytorchs_parameters_and_keras_biases(sketches, counts):
    # timm's resnet200: 64,673,832 without biases, which Keras's ResNets have.
    biases = total(sketches("resnet_v1_200"), keras.layers.Conv2D, lambda x: x.filters)
    assert counts("resnet_v1_200", 1000)[0] - biases == 64_673_832


@pytest.mark.slow
def test_resnet_v2_200_grows_from_152_by_its_blocks(counts):
    # 16 blocks of the second stage more: two norms in front, of 4f and f, one of f, and
    # a bias of 4f in the last convolution.
    f = 128
    block = 4 * f * f + 9 * f * f + f * 4 * f + 2 * 4 * f + 2 * f + 2 * f + 4 * f
    assert counts("resnet_v2_200")[0] == counts("resnet_v2_152")[0] + 16 * block


def test_small_networks_by_hand(counts):
    # TensorFlow's MNIST tutorial, one channel: 832 + 51,264 + 3,212,288 + 10,250.
    assert counts("lenet", 10, image_shape=(28, 28, 1)) == (3_274_634, 0)
    # 4,864 + 102,464 + 4,096·384 + 384 + 384·192 + 192 + 1,930.
    assert counts("cifarnet", 10) == (1_756_426, 0)
    # Simonyan & Zisserman, arXiv:1409.1556, table 2: A has 133 million.
    assert round(counts("vgg_a", 1000)[0] / 1e6) == 133


def test_every_name_is_checked_here():
    named = {*KERAS, *SLIM, *MILLIONS, *TRAINED} - {"vit_t"}
    named |= {"inception_v4", "resnet_v1_200", "resnet_v2_200"}
    assert named | {"lenet", "cifarnet", "vgg_a"} == set(ENTRIES)
