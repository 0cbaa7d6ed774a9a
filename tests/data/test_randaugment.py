"""The operations of RandAugment against Pillow, and how layers choose among them."""

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from plsc_tf.data.augmentation import randaugment

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 16, 3), np.uint8)


def _operation(name, amount=0.0, image=PIXELS):
    function = randaugment.OPERATIONS[name]
    return function(tf.constant(image), tf.constant(amount, tf.float32)).numpy()


@pytest.mark.parametrize(
    ("name", "pillow", "most"),
    [
        ("auto_contrast", ImageOps.autocontrast, 1),
        ("equalize", ImageOps.equalize, 0),
        ("identity", lambda image: image, 0),
    ],
)
def test_histogram_operations_equal_pillow(name, pillow, most):
    narrow = (PIXELS // 3 + 60).astype(np.uint8)
    photograph = np.random.default_rng(1).normal(100, 30, (64, 64, 3))
    photograph = photograph.clip(0, 255).astype(np.uint8)
    for image in (PIXELS, narrow, photograph, np.full((4, 5, 3), 7, np.uint8)):
        expected = np.asarray(pillow(Image.fromarray(image))).astype(int)
        assert np.abs(_operation(name, image=image) - expected).max() <= most


@pytest.mark.parametrize(
    ("name", "pillow"),
    [
        ("saturate", ImageEnhance.Color),
        ("contrast", ImageEnhance.Contrast),
        ("brighten", ImageEnhance.Brightness),
        ("sharpen", ImageEnhance.Sharpness),
    ],
)
@pytest.mark.parametrize("amount", [-1.0, -0.4, 0.6, 1.0])
def test_factors_equal_pillows_enhancers(name, pillow, amount):
    enhancer = pillow(Image.fromarray(PIXELS))
    expected = np.asarray(enhancer.enhance(1 + 0.9 * amount)).astype(int)
    # Pillow cuts where we round, and rounds what is in between.
    assert np.abs(_operation(name, amount) - expected).max() <= 2


@pytest.mark.parametrize("amount", [0.0, 0.25, -0.5, 1.0])
def test_solarize_and_posterize_equal_pillow(amount):
    image = Image.fromarray(PIXELS)
    expected = ImageOps.solarize(image, 256 * (1 - abs(amount)))
    np.testing.assert_array_equal(_operation("solarize", amount), expected)
    expected = ImageOps.posterize(image, 8 - round(4 * abs(amount)))
    np.testing.assert_array_equal(_operation("posterize", amount), expected)


@pytest.mark.parametrize("name", ["rotate", "shear_x", "shear_y"])
def test_warps_equal_pillows_up_to_the_rim(name):
    smooth = np.indices((31, 31)).sum(0)[..., np.newaxis] * np.array([4, 3, 2])
    image = smooth.astype(np.uint8)
    cos, sin = np.cos(np.radians(30) * 0.5), np.sin(np.radians(30) * 0.5)
    a, b, d, e = {
        "rotate": (cos, -sin, sin, cos),
        "shear_x": (1, 0.15, 0, 1),
        "shear_y": (1, 0, 0.15, 1),
    }[name]
    # Pillow's pixels have their centres at a half.
    center = 15.5
    data = (a, b, center - (a + b) * center, d, e, center - (d + e) * center)
    expected = Image.fromarray(image).transform(
        (31, 31), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR
    )
    middle = np.s_[8:23, 8:23]
    difference = _operation(name, 0.5, image) - np.asarray(expected, int)
    assert np.abs(difference[middle]).max() <= 1


def test_translations_move_by_their_share():
    # 0.5 * 0.45 of 16 pixels is 3.6, of 20 is 4.5 (to even).
    sideways = _operation("translate_x", 0.5)
    np.testing.assert_array_equal(sideways[:, 4:], PIXELS[:, :-4])
    assert (sideways[:, :4] == 128).all()
    np.testing.assert_array_equal(_operation("translate_y", -0.5)[:-4], PIXELS[4:])


def test_operations_without_an_amount_change_nothing():
    for name in set(randaugment.OPERATIONS) - {"auto_contrast", "equalize"}:
        np.testing.assert_array_equal(_operation(name, 0.0), PIXELS, name)


def test_layers_choose_every_operation_with_both_signs_equally_often():
    chance = tf.constant((np.arange(28 * 100) + 0.5) / 2800, tf.float32)
    operations, amounts = randaugment.choose(chance, 9)
    np.testing.assert_array_equal(np.bincount(operations), [200] * 14)
    np.testing.assert_allclose(np.abs(amounts), 0.9)
    for operation in range(14):
        assert np.isclose(amounts.numpy()[operations == operation].sum(), 0)


def test_a_layer_carries_out_what_was_chosen():
    for place, name in enumerate(randaugment.OPERATIONS):
        done = randaugment.apply(*map(tf.constant, (PIXELS, place, 0.5)))
        np.testing.assert_array_equal(done, _operation(name, 0.5), name)
