"""Weights of the other libraries' networks, given as arrays, embed as they do there."""

import functools

import numpy as np
import pytest

from plsc_tf import backbones
from plsc_tf.checkpoints import importers
from tests.importers.theirs import ArcfaceTorch

DEPTHS, WIDTHS, SIZE = (2, 1), (3, 5), 6
IMAGES = np.random.default_rng(7).integers(0, 256, (3, 12, 8, 3)).astype(np.uint8)


def small_iresnet(**options):
    options = {"embedding_size": SIZE, "depths": DEPTHS, "width": WIDTHS, **options}
    return backbones.build("iresnet", image_shape=(12, 8, 3), **options)


def source(weights, format):
    return importers.Source(format=format, backbone=weights, backbone_file="file")


# The last scale is 1, as arcface_torch keeps it, or was trained.
@pytest.mark.parametrize("scale", [{"features.weight": np.ones(SIZE, "f4")}, {}])
def test_an_iresnet_embeds_as_in_arcface_torch(scale):
    network, backbone = ArcfaceTorch(), small_iresnet()
    network.weights |= scale
    expected = network.embed(IMAGES, DEPTHS, WIDTHS, SIZE)
    # A state dict has its weights in order.
    network.weights["features.weight"] = network.weights.pop("features.weight")
    assert np.all(network.weights["features.weight"] == 1) == bool(scale)
    before = {name: array.copy() for name, array in network.weights.items()}
    importers.assign(source(network.weights, "arcface_torch"), backbone)
    found = backbone((IMAGES.astype(np.float32) - 127.5) / 128, training=False)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    for name, array in before.items():
        np.testing.assert_array_equal(network.weights[name], array)


def test_what_does_not_fit_is_named_and_nothing_is_changed():
    network = ArcfaceTorch()
    network.embed(IMAGES, DEPTHS, WIDTHS, SIZE)
    weights = network.weights
    del weights["layer1.1.conv2.weight"]
    weights["layer3.0.bn1.weight"] = np.ones(5, np.float32)
    weights["fc.weight"] = np.ones((4, 30), np.float32)
    backbone = small_iresnet()
    before = backbone.get_weights()
    with pytest.raises(ValueError, match="missing: our stage2_.*_conv.w") as caught:
        importers.assign(source(weights, "arcface_torch"), backbone)
    text = str(caught.value)
    assert "not in that network: layer3.0.bn1.weight" in text
    assert "fc.weight is [4, 30], not [6, 30]" in text
    np.testing.assert_equal(backbone.get_weights(), before)


def test_the_network_that_would_fit_is_proposed():
    weights = {f"conv{i}.weight": np.zeros((1, 1, 1, 1)) for i in range(53)}
    weights["features.running_var"] = np.zeros(128)
    with pytest.raises(ValueError, match="--model_name=iresnet50 --emb_size=128"):
        importers.assign(source(weights, "arcface_torch"), small_iresnet())


def test_a_network_is_built_only_for_weights_that_fit():
    """Otherwise, a few bytes could ask for a network that fills the memory."""
    weights = {f"conv{i}.weight": np.zeros((1, 1, 1, 1)) for i in range(53)}
    weights["features.running_var"] = np.zeros((10**7, 0))
    given = source(weights, "arcface_torch")
    size = importers.network(given)["emb_size"]
    make = functools.partial(backbones.build, "iresnet50", embedding_size=size)
    with pytest.raises(ValueError, match="does not contain the weights"):
        importers.build(given, make)


def test_plscs_bottlenecks_are_proposed():
    weights = {f"conv2d_{i}.w_0": np.zeros((1, 1, 1, 1)) for i in range(104)}
    weights["fc_0.b_0"] = np.zeros(SIZE)
    found = "--model_name=resnet101 --model_options=variant=v0.1 --emb_size=6"
    with pytest.raises(ValueError, match=found):
        importers.assign(source(weights, "plsc"), small_iresnet())
