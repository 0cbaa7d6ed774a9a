"""Parameter counts of the named networks, against the published ones."""

import pytest

from tests.marks import slow

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
# PLSC's trainable parameters, added up by hand from its source, layer by layer.
PLSC = {
    ("resnet50", "v0.1"): 43_584_985,  # basic blocks in all of PLSC's forms
    ("resnet50", "readme"): 43_584_985,
    ("resnet101", "v0.2"): 54_215_650,
    ("resnet101", "v0.1"): 15_544_131,
    ("resnet101", "readme"): 93_939_459,
    ("resnet152", "v0.2"): 70_753_779,
    ("resnet152", "v0.1"): 16_538_213,
    ("resnet152", "readme"): 109_613_861,
}


def some_slow(rows, fast):
    return [row if row in fast else slow(row) for row in rows]


@pytest.mark.parametrize("name", some_slow(ARCFACE_TORCH, ["iresnet18", "iresnet50"]))
def test_iresnets_have_the_parameters_of_arcface_torch(counts, name):
    assert counts(name) == ARCFACE_TORCH[name]


# Each depth and each variant.
FAST = [("resnet101", "v0.2"), ("resnet152", "v0.1"), ("resnet50", "readme")]


@pytest.mark.parametrize("row", some_slow(PLSC, FAST))
def test_resnets_have_the_parameters_of_plsc(counts, row):
    name, variant = row
    assert counts(name, variant=variant)[0] == PLSC[row]


def test_mobilefacenet_has_the_papers_million(counts):
    # Table 1 of arXiv:1804.07573: 976,000 kernel weights, 9,792 batch normalised
    # channels, 7,552 slopes. With each batch normalisation folded into the kernel
    # before it and one bias, that is 993,344: the paper's 0.99 M parameters and 4.0 MB.
    trainable, moving = counts("mobilefacenet", embedding_size=128)
    assert trainable == 976_000 + 2 * 9_792 + 7_552 == 1_003_136
    assert moving == 2 * 9_792


def test_resnet10_at_48_pixels_by_hand(counts):
    # Stem 27·32 + 64; a stage of f channels after c: 9·c·f + 9·f² + c·f + 6·f; then
    # 3 x 3 pixels of 256 channels to 256 numbers without a bias, and 256 offsets.
    arguments = {"image_shape": (48, 48, 3), "embedding_size": 256}
    assert counts("resnet10", **arguments)[0] == 1_817_568
