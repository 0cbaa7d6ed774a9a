"""Decoding equals Pillow; resizing and augmentation do what they say."""

import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from plsc_tf.data import images, preprocessing
from plsc_tf.data.augmentation import NUM_CHANCES, Augmentation

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 16, 3), np.uint8)


def _encode(kind, mode="RGB"):
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(buffer, kind)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [("JPEG", "RGB"), ("JPEG", "L"), ("PNG", "RGB"), ("PNG", "L"), ("PNG", "1")]
    + [("GIF", "RGB")],
)
def test_decode_equals_pillow(kind, mode):
    data = _encode(kind, mode)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(images.decode(data), expected)


def test_resize_averages_and_rounds():
    # Every output pixel of an antialiased halving by an area of equal pixels is it.
    small = np.array([[[10, 20, 30], [250, 0, 7]]], np.uint8)
    large = small.repeat(16, 0).repeat(16, 1)
    halved = images.resize(large, (8, 16)).numpy()
    assert halved.dtype == np.uint8 and halved.shape == (8, 16, 3)
    np.testing.assert_array_equal(
        halved[:, :7], np.broadcast_to(small[0, 0], (8, 7, 3))
    )
    # Averages are rounded, not cut: the mean of 0 and 255 is 127.5.
    checker = np.indices((8, 8)).sum(0)[..., np.newaxis].repeat(3, -1) % 2 * 255
    gray = images.resize(checker.astype(np.uint8), (1, 1)).numpy()
    assert gray[0, 0, 0] in (127, 128)


def test_resize_keeps_what_has_the_size_and_takes_batches():
    np.testing.assert_array_equal(images.resize(PIXELS, (20, 16)), PIXELS)
    both = images.resize(np.stack([PIXELS, PIXELS]), (7, 9))
    assert both.shape == (2, 7, 9, 3)
    np.testing.assert_array_equal(both[1], images.resize(PIXELS, (7, 9)))


def test_resize_of_unknown_size_in_a_graph_gives_the_same():
    @tf.function(input_signature=[tf.TensorSpec([None, None, 3], tf.uint8)])
    def run(image):
        return images.resize(image, (7, 9))

    np.testing.assert_array_equal(run(PIXELS), images.resize(PIXELS, (7, 9)))


def _augment(seed=(1, 2), image=PIXELS, **options):
    made = preprocessing.build("none", image.shape[:2], Augmentation(**options))
    chance = tf.random.stateless_uniform([NUM_CHANCES], seed)
    return made.augment(tf.constant(image), chance).numpy()


EVERYTHING = dict(
    flip=0.5,
    rotate=10,
    shift=0.1,
    crop_scale=(0.5, 1.0),
    zoom=0.2,
    shear=0.2,
    color_jitter=0.2,
    grey=0.2,
    cutout=0.3,
)


def test_same_seed_same_picture_other_seed_another():
    first, again = _augment(**EVERYTHING), _augment(**EVERYTHING)
    np.testing.assert_array_equal(first, again)
    assert first.shape == PIXELS.shape and first.dtype == np.uint8
    assert (first != _augment((1, 3), **EVERYTHING)).mean() > 0.5


def test_flip_mirrors_half_of_the_pictures_exactly():
    mirrored = 0
    for position in range(200):
        result = _augment((5, position), flip=0.5)
        is_mirrored = np.array_equal(result, PIXELS[:, ::-1])
        assert is_mirrored or np.array_equal(result, PIXELS)
        mirrored += is_mirrored
    # A binomial of 200 and 0.5 has a standard deviation of 7.
    assert 70 < mirrored < 130
    np.testing.assert_array_equal(_augment(flip=1.0), PIXELS[:, ::-1])


def test_shift_moves_whole_pixels_and_repeats_edges():
    seen = set()
    for position in range(40):
        result = _augment((7, position), shift=0.1)
        for down in range(-2, 3):
            for right in range(-2, 3):
                padded = np.pad(PIXELS, ((2, 2), (2, 2), (0, 0)), mode="edge")
                moved = padded[2 - down : 22 - down, 2 - right : 18 - right]
                if np.array_equal(result, moved):
                    seen.add((down, right))
                    break
            else:
                continue
            break
        else:
            pytest.fail("not a shift by whole pixels")
    assert len(seen) > 10


def test_rotation_by_nothing_and_full_crop_leave_the_picture():
    # With crop_scale (1, 1) only the aspect ratio varies; at rotate=0 nothing moves.
    mirrored = _augment(flip=1.0, rotate=1e-6)
    np.testing.assert_array_equal(mirrored, PIXELS[:, ::-1])


def test_rotation_turns_about_the_centre():
    # A quarter turn of a square is exact; 90 degrees come up at no seed, so the
    # centre of an odd picture must at least stay where it is.
    image = np.zeros((15, 15, 3), np.uint8)
    image[7, 7] = 255
    image[7, 12] = 200
    result = _augment(image=image, rotate=180)
    assert result[7, 7, 0] == 255
    rows, columns = np.nonzero(result[..., 0] * (np.indices((15, 15)).sum(0) != 14))
    radii = np.hypot(rows - 7, columns - 7)
    assert radii[radii > 2].size and np.all(np.abs(radii[radii > 2] - 5) < 1.5)


def test_zoom_changes_the_size_within_its_share():
    image = np.zeros((41, 41, 3), np.uint8)
    image[10:31, 10:31] = 255  # 21 pixels wide, about the centre
    widths = [
        (_augment((1, k), image=image, zoom=0.4)[20, :, 0] > 127).sum()
        for k in range(50)
    ]
    # 0.6 ... 1.4 of 21 pixels are 12.6 ... 29.4
    assert 12 <= min(widths) <= 15 and 27 <= max(widths) <= 30


def test_shear_slants_and_keeps_the_middle_row():
    image = np.zeros((41, 41, 3), np.uint8)
    image[:, 20] = 255  # a vertical line
    slants = []
    for k in range(50):
        result = _augment((1, k), image=image, shear=0.5)[..., 0].astype(float)
        columns = (result * np.arange(41)).sum(1) / result.sum(1)
        np.testing.assert_allclose(columns[20], 20, atol=1e-6)
        np.testing.assert_allclose(np.diff(columns).std(), 0, atol=0.02)
        slants.append(columns[40] - columns[0])
    # Half of the height of 40 pixels either way.
    assert -20 <= min(slants) < -17 and 17 < max(slants) <= 20


def test_color_jitter_stays_within_its_factors():
    image = np.full((8, 8, 3), 100, np.uint8)
    values = [
        int(_augment((1, k), image=image, color_jitter=0.2)[0, 0, 0]) for k in range(50)
    ]
    # A plain grey has neither contrast nor saturation: brightness 0.8...1.2 is left.
    assert 80 <= min(values) < 90 and 110 < max(values) <= 120


def test_grey_uses_luma():
    image = np.full((2, 2, 3), (100, 50, 200), np.uint8)
    # 0.299 * 100 + 0.587 * 50 + 0.114 * 200 = 82.05
    np.testing.assert_array_equal(
        _augment(image=image, grey=1.0), np.full((2, 2, 3), 82)
    )


def test_cutout_erases_at_most_its_share():
    image = np.zeros((40, 40, 3), np.uint8)
    shares = [
        (_augment((1, k), image=image, cutout=0.5) == 128).mean() for k in range(50)
    ]
    assert 0.05 < max(shares) <= (21 / 40) ** 2


@pytest.mark.parametrize(
    "options", [{"flip": 2}, {"shift": -0.1}, {"crop_scale": (0.9, 0.1)}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="Received"):
        Augmentation(**options)


def test_names_of_augmentations():
    assert Augmentation.named("face") == Augmentation(flip=0.5)
    assert Augmentation.named("none") is None and Augmentation.named(None) is None
    with pytest.raises(ValueError, match="'face', 'none'"):
        Augmentation.named("fase")


def test_real_photograph_equals_pillow(data_dir):
    path = sorted((data_dir / "lfw250_sample").rglob("*.jpg"))[0]
    np.testing.assert_array_equal(
        images.decode(path.read_bytes()), np.asarray(Image.open(path))
    )
