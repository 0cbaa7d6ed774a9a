"""Preprocessings by name: what training and evaluation see of a picture."""

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data import images, preprocessing
from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.source import without_autograph
from plsc_tf.options.settings import known_options
from tests.data.test_augmentation import chances

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
# Position (row, column) in the red and green channel.
GRADIENT = np.stack([*np.indices((100, 120)), np.zeros((100, 120))], axis=-1)
GRADIENT = GRADIENT.astype(np.uint8)


def _chance(seed=0, **columns):
    return chances(1, seed, **columns)[0]


def _train(made, picture, chance):
    return made.augment(tf.constant(picture), chance).numpy()


def test_names_are_fastnns_and_ours():
    expected = ["cifarnet", "face", "inception", "lenet", "none", "vgg"]
    assert preprocessing.names() == expected
    with pytest.raises(ValueError, match="'vgga'. Did you mean 'vgg'"):
        preprocessing.build("vgga", (8, 8))
    with pytest.raises(ValueError, match="image_size"):
        preprocessing.build("vgg", (8, 0))
    assert list(known_options()["preprocessing_name"].choices) == expected


@pytest.mark.parametrize("name", preprocessing.names())
def test_every_size_becomes_the_asked_one_in_graphs_and_eagerly(name):
    made = preprocessing.build(name, (24, 20))
    random = np.random.default_rng(1)
    shapes = (40, 30, 3), (24, 20, 3), (10, 50, 3), (9, 9, 3)
    pictures = [random.integers(0, 256, shape, np.uint8) for shape in shapes]
    chance = tf.stack([_chance(seed) for seed in range(4)])

    def block(data, numbers):
        spec, items = tf.TensorSpec([24, 20, 3], tf.uint8), (data, made.decide(numbers))
        trained = tf.map_fn(lambda x: made.apply(*x), items, fn_output_signature=spec)
        evaluated = tf.map_fn(made.evaluate, data, fn_output_signature=spec)
        any_size = tf.TensorSpec([None] * 3, tf.uint8)
        kept = tf.map_fn(made.decode_for_cache, data, fn_output_signature=any_size)
        return trained, evaluated, kept

    data = [images.encode(picture) for picture in pictures]
    dataset = tf.data.Dataset.from_tensors((data, chance))
    dataset = dataset.map(without_autograph(block))
    assert dataset.element_spec[0].shape[1:] == (24, 20, 3)
    trained, evaluated, kept = next(dataset.as_numpy_iterator())
    assert trained.shape == (4, 24, 20, 3) and trained.dtype == np.uint8
    assert kept.shape == (4, *made.cached_size, 3)
    for place, picture in enumerate(pictures):
        eager = _train(made, data[place], chance[place]).astype(int)
        assert np.abs(trained[place] - eager).max() <= 1
        array = made.evaluate(picture).numpy().astype(int)
        assert np.abs(evaluated[place] - array).max() <= 1
        # A cached picture goes the rest of the way.
        again = made.augment(tf.constant(kept[place]), chance[place])
        assert again.shape == (24, 20, 3)


def test_face_mirrors_every_second_picture_and_nothing_else():
    made = preprocessing.build("face", (40, 30))
    assert list(made.decide(_chance()[np.newaxis])) == ["mirror"]
    data = images.encode(PIXELS)
    for place, expected in ((0.49, PIXELS[:, ::-1]), (0.5, PIXELS)):
        np.testing.assert_array_equal(_train(made, data, _chance(c0=place)), expected)
    np.testing.assert_array_equal(made.evaluate(data), PIXELS)


@pytest.mark.parametrize("name", ["face", "none", "lenet"])
def test_a_picture_is_stretched_to_the_size_or_cut_by_lenet(name):
    size = (28, 50) if name == "lenet" else (20, 20)
    made = preprocessing.build(name, size, None)
    expected = images.resize(PIXELS, size)
    if name == "lenet":  # cuts out the middle, or surrounds with black
        expected = np.pad(PIXELS[6:34], ((0, 0), (10, 10), (0, 0)))
    np.testing.assert_array_equal(_train(made, PIXELS, _chance()), expected)
    np.testing.assert_array_equal(made.evaluate(PIXELS), expected)


def test_cifarnet_pads_four_pixels_and_crops_at_random():
    made = preprocessing.build("cifarnet", (40, 30), None)
    padded = np.pad(PIXELS, ((4, 4), (4, 4), (0, 0)))
    seen = set()
    for seed in range(60):
        result = _train(made, PIXELS, _chance(seed))
        parts = {p: padded[p[0] :, p[1] :][:40, :30] for p in np.ndindex(9, 9)}
        places = [p for p, part in parts.items() if np.array_equal(result, part)]
        assert len(places) == 1
        seen.add(places[0])
    assert {top for top, _ in seen} == set(range(9)) == {left for _, left in seen}
    np.testing.assert_array_equal(made.evaluate(PIXELS), PIXELS)


def test_cifarnet_changes_brightness_and_contrast():
    made = preprocessing.build("cifarnet", (32, 32))
    expected = Augmentation(flip=0.5, brightness=63, contrast=(0.2, 1.8))
    assert made.augmentation == expected
    # Levels by column 16: 2 * 0.75 - 1 = a half of 63; contrast by column 14: 1.
    grey = np.full((40, 40, 3), 100, np.uint8)
    result = _train(made, grey, _chance(c16=0.75, c14=0.5))
    assert np.abs(result[8:-8, 8:-8].astype(int) - 131.5).max() <= 1.5


def test_inception_evaluates_the_middle_and_crops_by_area():
    quarter = Augmentation(crop_scale=(0.25, 0.25))
    made = preprocessing.build("inception", (28, 28), quarter)
    # 0.875 of 40 x 30 leaves rows 2...38 and columns 1...28 or so, by central_crop.
    expected = images.resize(tf.image.central_crop(PIXELS, 0.875), (28, 28))
    np.testing.assert_array_equal(made.evaluate(PIXELS), expected)
    # A quarter of the area at ratio 1 of 100 x 120 pixels: 54.77 -> 55 pixels square;
    # the place is 0.5 of what is left, floor(0.5 * 46) and floor(0.5 * 66).
    result = _train(made, GRADIENT, _chance(c4=0.3, c5=0.5, c8=0.5, c9=0.5))
    box = GRADIENT[23:78, 33:88]
    np.testing.assert_array_equal(result, images.resize(box, (28, 28)))


def test_inceptions_crop_needs_its_augmentation():
    whole = images.resize(GRADIENT, (20, 24))
    without = preprocessing.build("inception", (20, 24), None)
    np.testing.assert_array_equal(_train(without, GRADIENT, _chance(c4=0.0)), whole)


# A PNG of 141 bytes would take 270 GB.
def test_vgg_cuts_the_ends_of_a_long_picture_first():
    made = preprocessing.build("vgg", (512, 512), None)
    assert made.evaluate(np.full((1, 65535, 3), 7, np.uint8)).shape == (512, 512, 3)


def test_vgg_scales_the_shorter_side_and_crops():
    made = preprocessing.build("vgg", (56, 56), None)
    # For 56 the shorter side of 96 becomes 64...128: parts of 84...42 pixels.
    picture = GRADIENT[:96]
    for scale, side in ((0.0, 84), (0.99999, 42)):
        result = _train(made, picture, _chance(c6=scale, c7=0.0, c31=0.0))
        expected = images.resize(picture[:side, :side], (56, 56))
        np.testing.assert_array_equal(result, expected)
    # Evaluation: shorter side 64, so 64 x 80; the middle is from row 4, column 12.
    whole = tf.image.resize(picture, (64, 80), antialias=True)
    expected = np.rint(whole[4:60, 12:68]).astype(np.uint8)
    np.testing.assert_array_equal(made.evaluate(picture), expected)
