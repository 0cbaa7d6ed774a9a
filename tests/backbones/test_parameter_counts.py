"""Parameter counts of the named networks, against the published ones."""

import math

import pytest

# Trainable, and moving means and variances. From arcface_torch's iresnet.py itself,
# instantiated in PyTorch: its requires_grad parameters and its float buffers. Known
# there as 24.03, 34.14, 43.59, 65.16 and 118.83 million, which includes the 512
# scales of the last batch normalisation that it freezes at 1 and we leave out.
ARCFACE_TORCH = {
    "iresnet18": (24_025_088, 14_720),
    "iresnet34": (34_138_816, 25_856),
    "iresnet50": (43_590_336, 38_144),
    "iresnet100": (65_155_648, 69_632),
    "iresnet200": (118_833_408, 136_064),
}
PLSC_DEPTHS = {50: (3, 4, 14, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


@pytest.fixture
def counts(sketch):
    """A function of (name, **arguments): trainable and non-trainable parameters."""
    return lambda name, **arguments: parameters(sketch(name, **arguments))


def parameters(network):
    return tuple(
        sum(math.prod(weight.shape) for weight in weights)
        for weights in (network.trainable_weights, network.non_trainable_weights)
    )


@pytest.mark.parametrize("name", ARCFACE_TORCH)
def test_iresnets_have_the_parameters_of_arcface_torch(counts, name):
    assert counts(name) == ARCFACE_TORCH[name]


def plsc_count(depths, filters, bottleneck, pixels=7 * 7, size=512):
    """PLSC's trainable parameters, written out from its source by hand."""
    total = 3 * 9 * 64 + 2 * 64 + 1  # stem: convolution, batch norm, one slope
    channels = 64
    for depth, out in zip(depths, filters, strict=True):
        for index in range(depth):
            total += 2 * channels  # the first batch normalisation
            if bottleneck:
                inner = out // 4
                total += channels * inner + 2 * inner + 1
                total += 9 * inner * inner + 2 * inner + 1
                total += inner * out + 2 * out
            else:
                total += 9 * channels * out + 2 * out + 1
                total += 9 * out * out + 2 * out
            if index == 0:
                total += channels * out + 2 * out  # the shortcut
            channels = out
    # Batch norm, fully connected layer with a bias, batch norm.
    return total + 2 * channels + channels * pixels * size + size + 2 * size


@pytest.mark.parametrize("layers", PLSC_DEPTHS)
@pytest.mark.parametrize(
    "variant, filters, bottleneck",
    [
        ("v0.2", (64, 128, 256, 512), False),
        ("v0.1", (64, 128, 256, 512), True),
        ("readme", (256, 512, 1024, 2048), True),
    ],
)
def test_resnets_have_the_parameters_of_plsc(
    counts, layers, variant, filters, bottleneck
):
    if layers == 50:  # basic blocks in all of PLSC's forms
        filters, bottleneck = (64, 128, 256, 512), False
    expected = plsc_count(PLSC_DEPTHS[layers], filters, bottleneck)
    assert counts(f"resnet{layers}", variant=variant)[0] == expected


def test_resnet50_has_43_6_million_parameters(counts):
    assert counts("resnet50") == (43_584_985, 38_144)


def test_mobilefacenet_has_the_papers_million(counts):
    # Table 1 of arXiv:1804.07573: 976,000 kernel weights, 9,792 batch normalised
    # channels, 7,552 slopes. With each batch normalisation folded into the kernel
    # before it and one bias, that is the paper's 0.99 M parameters and 4.0 MB.
    trainable, moving = counts("mobilefacenet", embedding_size=128)
    assert trainable == 976_000 + 2 * 9_792 + 7_552 == 1_003_136
    assert moving == 2 * 9_792
    folded = trainable - 9_792
    assert folded == 993_344
    assert round(folded * 4 / 1e6, 1) == 4.0


def test_resnet10_at_48_pixels_by_hand(counts):
    total = 27 * 32 + 2 * 32  # stem: convolution, batch norm
    channels = 32
    for filters in (32, 64, 128, 256):
        # Two 3x3 convolutions, the 1x1 shortcut, three batch norms.
        total += 9 * channels * filters + 9 * filters**2 + channels * filters
        total += 3 * 2 * filters
        channels = filters
    # 48 / 16 = 3: nine pixels to 256 numbers without a bias, a batch norm's offsets.
    total += 9 * 256 * 256 + 256
    arguments = {"image_shape": (48, 48, 3), "embedding_size": 256}
    assert counts("resnet10", **arguments)[0] == total
