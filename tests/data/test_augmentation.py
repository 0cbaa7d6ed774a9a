"""Decisions for blocks, and operations against Pillow and arithmetic by hand."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf.data.augmentation.operations as ops
from plsc_tf.data.augmentation import NUM_CHANCES, Augmentation, apply, decide
from plsc_tf.data.pipeline import PipelineOptions
from plsc_tf.data.source import without_autograph

SIZE = (20, 16)
PIXELS = np.random.default_rng(0).integers(0, 256, (*SIZE, 3), np.uint8)
EVERYTHING = Augmentation(
    flip=0.5,
    rotate=10,
    shift=0.1,
    crop_scale=(0.5, 1.0),
    color_jitter=0.2,
    brightness=20,
    hue=0.1,
    grey=0.3,
    cutout=0.5,
    low_resolution=0.5,
    crop_in_place=0.5,
    randaugment_layers=1,
    erasing=0.5,
)


def chances(count=50, seed=0, **columns):
    """Uniform numbers; columns by number, as c5=0.25, replaced."""
    chance = np.random.default_rng(seed).random((count, NUM_CHANCES)).astype(np.float32)
    for name, value in columns.items():
        chance[:, int(name[1:])] = value
    return tf.constant(chance)


def _block(options, chance, image=PIXELS):
    """Changes copies of an image, one for each row of random numbers."""
    copies = tf.repeat(image[np.newaxis], tf.shape(chance)[0], axis=0)
    decisions = decide(chance, options, image.shape[:2])
    items, change = (copies, decisions), lambda item: apply(*item, options)
    return tf.map_fn(change, items, fn_output_signature=tf.uint8)


def _rows(*arguments):
    return _block(*arguments).numpy()


def test_eager_and_tf_data_agree():
    chance, block = chances(12), functools.partial(_block, EVERYTHING)
    dataset = tf.data.Dataset.from_tensors(chance).map(without_autograph(block))
    in_graph = next(dataset.as_numpy_iterator())
    # Graphs contract sums and products otherwise: a level, at halves.
    difference = np.abs(in_graph - _rows(EVERYTHING, chance).astype(np.int32))
    assert (difference > 1).mean() < 0.001 and (difference > 0).mean() < 0.01


@pytest.mark.parametrize(
    "options",
    [
        Augmentation(),
        Augmentation(color_jitter=0.5, hue=0.5, color_probability=0.0),
        # Hardly ever: these are decided and carried out, without effect.
        Augmentation(flip=1e-9, grey=1e-9, low_resolution=1e-9, crop_in_place=1e-9),
        Augmentation(color_jitter=0.5, hue=0.5, color_probability=1e-9),
        Augmentation(erasing=1e-9),
        Augmentation(randaugment_layers=3, randaugment_magnitude=0.0, flip=0.0),
    ],
    ids=str,
)
def test_what_does_not_happen_leaves_every_bit(options):
    # RandAugment's first operation is "identity"; these numbers choose it.
    for result in _rows(options, chances(8, c28=0.0, c29=0.01, c30=0.02)):
        np.testing.assert_array_equal(result, PIXELS)


def test_switching_one_change_on_does_not_change_the_others():
    chance = chances(30)
    more = {"grey": 0.5, "color_jitter": 0.3, "low_resolution": 0.5, "erasing": 0.5}
    together = decide(chance, Augmentation(flip=0.5, cutout=0.5, **more), SIZE)
    for name, value in decide(chance, Augmentation(flip=0.5, cutout=0.5), SIZE).items():
        np.testing.assert_array_equal(value, together[name])


def test_changes_happen_with_their_probability():
    for name in ("flip", "grey", "low_resolution"):
        made = decide(chances(4000), Augmentation(**{name: 0.2}), SIZE)
        # A binomial of 4000 and 0.2 has a standard deviation of 25.
        assert abs(next(iter(made.values())).numpy().sum() - 800) < 125


def test_crop_in_place_keeps_a_rectangle_and_nothing_else():
    options = Augmentation(crop_in_place=1.0)
    shares = []
    for result in _rows(options, chances(40), np.maximum(PIXELS, 1)):
        kept = result.any(axis=2)
        rows, columns = np.flatnonzero(kept.any(1)), np.flatnonzero(kept.any(0))
        box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        np.testing.assert_array_equal(result[box], np.maximum(PIXELS, 1)[box])
        assert kept.sum() == kept[box].size
        shares.append(kept.mean())
    # 0.2 ... 1 of the area, sides rounded to whole pixels.
    assert 0.15 < min(shares) < 0.3 and 0.8 < max(shares) <= 1


def test_erasing_fills_rectangles_of_its_area_and_ratio_with_noise():
    image = np.full((100, 100, 3), 200, np.uint8)
    block = tf.function(_block, autograph=False)
    results = block(Augmentation(erasing=0.5), chances(400), image).numpy()
    boxes, noise = [], []
    for result in results:
        changed = (result != 200).any(axis=2)
        if not changed.any():
            continue
        rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
        box = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        # A pixel of the noise is 200, 200, 200 once in 256 ** 3.
        assert changed[box].all() and changed.sum() == changed[box].size
        boxes.append(changed[box].shape)
        noise.append(result[box].reshape(-1))
    # A binomial of 400 and 0.5 has a standard deviation of 10.
    assert abs(len(boxes) - 200) < 50
    high, wide = np.array(boxes, float).T
    areas, inside = high * wide / 1e4, (high < 100) & (wide < 100)
    assert 0.015 < areas.min() < 0.05 and 0.33 < areas.max() < 0.41
    ratios = (high / wide)[inside]
    # 0.3 to 1 / 0.3, sides of at least 7 pixels rounded by up to half of one.
    assert 0.26 < ratios.min() < 0.5 and 2.7 < ratios.max() < 3.8
    counts = np.bincount(np.concatenate(noise), minlength=256)
    assert np.abs(counts / counts.mean() - 1).max() < 0.05
    again = block(Augmentation(erasing=0.5), chances(400), image)
    np.testing.assert_array_equal(again, results)


def test_a_mirror_image_is_exact():
    chance = tf.concat([chances(1, c0=0.49), chances(1, c0=0.51)], 0)
    mirrored, same = _rows(Augmentation(flip=0.5), chance)
    np.testing.assert_array_equal(mirrored, PIXELS[:, ::-1])
    np.testing.assert_array_equal(same, PIXELS)
    # The same where pixels are interpolated.
    (warped,) = _rows(Augmentation(flip=1.0, rotate=1e-6), chances(1))
    np.testing.assert_array_equal(warped, mirrored)


def test_shift_moves_whole_pixels_and_repeats_edges():
    options, chance = Augmentation(shift=0.1), chances()
    offsets = decide(chance, options, SIZE)["shift"].numpy()
    assert len(set(map(tuple, offsets))) > 10 and np.abs(offsets).max() == 2
    padded = np.pad(PIXELS, ((2, 2), (2, 2), (0, 0)), mode="edge")
    for (down, right), result in zip(offsets, _rows(options, chance), strict=True):
        moved = padded[2 - down : 22 - down, 2 - right : 18 - right]
        np.testing.assert_array_equal(result, moved)


def test_zoom_changes_the_size_within_its_share():
    image = np.zeros((41, 41, 3), np.uint8)
    image[10:31, 10:31] = 255  # 21 pixels wide, about the center
    results = _rows(Augmentation(zoom=0.4), chances(), image)
    widths = [(result[20, :, 0] > 127).sum() for result in results]
    # 0.6 ... 1.4 of 21 pixels are 12.6 ... 29.4
    assert 12 <= min(widths) <= 15 and 27 <= max(widths) <= 30


def test_shear_slants_and_keeps_the_middle_row():
    image = np.zeros((41, 41, 3), np.uint8)
    image[:, 20] = 255  # a vertical line
    slants = []
    for result in _rows(Augmentation(shear=0.5), chances(), image).astype(float):
        columns = (result[..., 0] * np.arange(41)).sum(1) / result[..., 0].sum(1)
        np.testing.assert_allclose(columns[20], 20, atol=1e-6)
        np.testing.assert_allclose(np.diff(columns).std(), 0, atol=0.02)
        slants.append(columns[40] - columns[0])
    # Half of the height of 40 pixels either way.
    assert -20 <= min(slants) < -17 and 17 < max(slants) <= 20


def test_color_jitter_grey_and_cutout_on_plain_images():
    plain = np.full((8, 8, 3), 100, np.uint8)
    results = _rows(Augmentation(color_jitter=0.2), chances(), plain)
    values = [int(result[0, 0, 0]) for result in results]
    # A plain grey has neither contrast nor saturation: brightness 0.8...1.2 is left.
    assert 80 <= min(values) < 90 and 110 < max(values) <= 120
    plain[:] = 100, 50, 200
    # 0.299 * 100 + 0.587 * 50 + 0.114 * 200 = 82.05
    (grey,) = _rows(Augmentation(grey=1.0), chances(1), plain)
    np.testing.assert_array_equal(grey, np.full_like(plain, 82))
    black = np.zeros((40, 40, 3), np.uint8)
    results = _rows(Augmentation(cutout=0.5), chances(), black)
    assert 0.05 < max((result == 128).mean() for result in results) <= (21 / 40) ** 2


def _colors(image, **changes):
    same = {"brightness": 1.0, "levels": 0.0, "contrast": 1.0, "saturation": 1.0}
    values = {**same, "hue": 0.0, **changes}
    maps = ops.color_maps(**{k: tf.constant([v]) for k, v in values.items()})
    return ops.change_colors(tf.constant(image), maps[0]).numpy().astype(int)


def _luma(image):
    return image @ np.array([0.299, 0.587, 0.114])


def test_colors_are_changed_in_the_documented_order():
    changes = dict(brightness=0.9, levels=5.0, contrast=0.7, saturation=0.5)
    pixels = PIXELS.astype(float)
    pixels = 0.9 * pixels + 5
    mean = _luma(pixels).mean()
    pixels = mean + 0.7 * (pixels - mean)
    grey = _luma(pixels)[..., np.newaxis]
    pixels = grey + 0.5 * (pixels - grey)
    assert np.abs(_colors(PIXELS, **changes) - np.rint(pixels)).max() <= 1
    np.testing.assert_array_equal(_colors(PIXELS), PIXELS)


def test_hue_turns_colors_about_grey():
    grey = np.full((2, 2, 3), 77, np.uint8)
    np.testing.assert_array_equal(_colors(grey, hue=0.3), grey)
    # Mild colors, so that nothing is cut at 0 or 255.
    mild = (PIXELS // 8 + 112).astype(np.uint8)
    # Half a turn takes each color to its complement at the same luma.
    luma = _luma(mild.astype(float))[..., np.newaxis]
    assert np.abs(_colors(mild, hue=0.5) - (2 * luma - mild)).max() <= 1
    there = _colors(mild, hue=0.2).astype(np.uint8)
    assert np.abs(there.astype(int) - mild).max() > 5
    assert np.abs(_colors(there, hue=-0.2) - mild.astype(int)).max() <= 2


def test_color_ranges_of_their_own_replace_the_jitter():
    options = Augmentation(color_jitter=0.2, contrast=(0.5, 0.5), saturation=(1.0, 1.0))
    brightness = np.float32(0.8 + 0.4 * 0.25)
    maps = decide(chances(3, c12=0.25), options, SIZE)["colors"].numpy()
    # Grey is multiplied by contrast * brightness: columns sum over the rows' inputs.
    np.testing.assert_allclose(maps[:, :3].sum(1), 0.5 * brightness, rtol=1e-5)
    np.testing.assert_allclose(maps[:, 3, 1], 0.5 * brightness, rtol=1e-5)


def test_low_resolution_goes_down_and_up():
    # 0 is "nearest": halved and doubled, each 2x2 block shows one of its pixels.
    image = tf.constant(PIXELS)
    small = ops.low_resolution(image, tf.constant([10, 8]), tf.constant([0, 0]))
    blocks = small.numpy().reshape(10, 2, 8, 2, 3)
    assert (blocks == blocks[:, :1, :, :1]).all()
    assert (blocks[:, 0, :, 0] == PIXELS[1::2, 1::2]).all()
    # 3 is "area": the mean of each block.
    small = ops.low_resolution(image, tf.constant([10, 8]), tf.constant([3, 0]))
    means = PIXELS.reshape(10, 2, 8, 2, 3).mean((1, 3))
    assert np.abs(small.numpy()[::2, ::2] - means).max() <= 0.5
    for way in range(len(ops.METHODS)):
        same = ops.low_resolution(image, tf.constant(SIZE), tf.constant([way, way]))
        np.testing.assert_array_equal(same, PIXELS)


@pytest.mark.parametrize(
    "options",
    [
        {"hue": 0.6},
        {"crop_scale": (0.5, 1.1)},
        {"contrast": (1.2, 0.8)},
        {"randaugment_layers": 4},
        {"randaugment_magnitude": 11},
        {"color_probability": -0.1},
        {"erasing": 1.1},
        {"crop_scale": (0.9, 0.1)},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}.*Received"):
        Augmentation(**options)


def test_names_of_augmentations():
    def named(name):
        return PipelineOptions(preprocessing="vgg", augmentation=name).augmentation

    assert named("face") == named("own") == Augmentation(flip=0.5)
    assert named("none") is None and named(None) is None
    with pytest.raises(ValueError, match="'fase'. Did you mean 'face'?"):
        named("fase")
