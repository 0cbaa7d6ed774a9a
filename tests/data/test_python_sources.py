"""Generators, tf.data.Datasets, and readers in PLSC's form."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.images import encode
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.base64_text import encode_line
from plsc_tf.data.readers.python import (
    from_dataset,
    from_generator,
    from_reader,
    pairs_from_reader,
)
from plsc_tf.utils import base64_reader

OPTIONS = PipelineOptions(image_size=(6, 4), shuffle=False)


def _arrays(count=10):
    for number in range(count):
        yield np.full((6, 4, 3), number, np.uint8), number % 3


def test_generator_of_arrays_every_epoch_anew():
    batches = Batches(from_generator(_arrays, num_classes=3), 4, options=OPTIONS)
    for epoch in (0, 1):
        images, labels = zip(*batches.epoch(epoch), strict=True)
        assert [len(part) for part in images] == [4, 4, 2]
        np.testing.assert_array_equal(np.concatenate(labels), np.arange(10) % 3)
        np.testing.assert_array_equal(images[1][1], np.full((6, 4, 3), 5))
    assert batches.steps_per_epoch is None
    with pytest.raises(TypeError, match="Pass num_examples"):
        len(batches)


@pytest.mark.parametrize("use_caching", [False, True])
def test_generator_is_shuffled_and_resumes(use_caching):
    options = PipelineOptions(image_size=(6, 4), seed=1, use_caching=use_caching)
    batches = Batches(from_generator(_arrays), 3, options=options)
    whole = [images[:, 0, 0, 0].numpy().tolist() for images, _ in batches.epoch(2)]
    rest = [images[:, 0, 0, 0].numpy().tolist() for images, _ in batches.epoch(2, 2)]
    assert sorted(sum(whole, [])) == list(range(10)) != sum(whole, [])
    assert rest == whole[2:]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (np.full((3, 6, 4), 7.4, np.float32), 7),  # PLSC's reader: planes first
        (np.full((6, 4), 9, np.uint8), 9),
        (np.full((6, 4, 1), 300.0), 255),
    ],
)
def test_generator_accepts_other_arrays(image, expected):
    source = from_generator(lambda: iter([(image, 0)]))
    ((images, _),) = Batches(source, 1, options=OPTIONS)
    np.testing.assert_array_equal(images, np.full((1, 6, 4, 3), expected))


def test_generator_errors_say_what_is_expected():
    with pytest.raises(ValueError, match="must be a function.*: type=generator"):
        from_generator(_arrays())
    with pytest.raises(ValueError, match="yields no examples"):
        from_generator(lambda: iter([]))


NO_IMAGES = [np.full((2, 2, 3), np.nan), np.zeros((0, 5, 3), np.uint8)]
NO_IMAGES += [np.full((2, 2), "a"), [[1, 2], [3]], None, {}]
NO_LABELS = [1.5, float("nan"), float("inf"), 2**63, "one", None, [1, 2], {}]


@pytest.mark.parametrize(
    ("image", "label", "words"),
    [
        *((image, 0, "dots must yield .* at example 0") for image in NO_IMAGES),
        *((b"x", label, "yield .image, label. with a whole") for label in NO_LABELS),
        ([1, 2, 3], 0, r"at example 0. Received: shape=\(3,\)"),
        (np.zeros((6, 4, 3)) - 0.5, 0, "0...255; the model normalizes"),
    ],
)
def test_wrong_examples_are_refused(image, label, words):
    with pytest.raises(ValueError, match=words):
        from_generator(lambda: iter([(image, label)]), name="dots")


def test_generator_that_fails_later_is_reported():
    def broken():
        yield from _arrays(3)
        raise OSError("the disk is gone")

    with pytest.raises(ValueError, match="position 3 of epoch 0: .*the disk is gone"):
        list(Batches(from_generator(broken), 2, options=OPTIONS))


@pytest.mark.parametrize(("first", "noticed"), [(0, True), (15, True), (16, False)])
def test_normalised_pictures_behind_one_that_happens_to_be_fine(first, noticed):
    """The first sixteen of an epoch are looked at; black ones say nothing."""

    def reader():
        for number in range(17):
            value = np.linspace(-1, 1, 6 * 4 * 3) if number >= first else 0.0
            yield np.broadcast_to(value, 72).reshape(6, 4, 3).astype(np.float32), 0

    pixels = np.stack([picture for picture, _ in reader()])
    dataset = tf.data.Dataset.from_tensor_slices((pixels, np.zeros(17, int)))
    for read in (
        lambda: list(Batches(from_generator(reader, name="dots"), 2, options=OPTIONS)),
        lambda: from_dataset(dataset, name="dots"),
    ):
        refused = pytest.raises(ValueError, match="dots must have pixels in 0...255")
        with refused if noticed else contextlib.nullcontext():
            read()


def test_dataset_of_single_examples():
    dataset = tf.data.Dataset.from_tensor_slices(
        (np.full((5, 6, 4, 3), 200.0, np.float32), np.arange(5, dtype=np.int32))
    )
    source = from_dataset(dataset, num_classes=5)
    assert source.num_examples == 5
    labels = np.concatenate([y for _, y in Batches(source, 2, options=OPTIONS)])
    np.testing.assert_array_equal(labels, np.arange(5))


def test_dataset_errors_say_what_is_expected():
    pixels = np.full((5, 6, 4, 3), 200, np.uint8)
    dataset = tf.data.Dataset.from_tensor_slices((pixels, np.arange(5)))
    scaled = dataset.map(lambda x, y: (tf.cast(x, tf.float32) / 255, y))
    for wrong, words in (
        (dataset.batch(2), "call .unbatch"),
        (dataset.repeat(), "repeats without end"),
        (dataset.map(lambda x, y: (x, tf.one_hot(y, 5))), "nor one-hot"),
        (dataset.map(lambda x, y: x), r"single \(image, label\)"),
        (scaled, "0...255"),
    ):
        with pytest.raises(ValueError, match=words):
            from_dataset(wrong)


@pytest.mark.parametrize("label", [3, 3.0, np.float32(3), np.uint8(3), np.array(3)])
def test_whole_numbers_of_all_kinds_are_labels(label):
    source = from_generator(lambda: iter([(b"x", label)]))
    (item,) = source.epoch(seed=0, epoch=0, shuffle=False)
    assert int(item["label"]) == 3


def chw(value):
    """A picture of one grey, as PLSC's readers yield it: float32 [3, 8, 6]."""
    return np.full((3, 8, 6), value, np.float32)


def greys(source):
    options = PipelineOptions(image_size=(8, 6), augmentation=None, shuffle=False)
    return [
        (int(image.mean()), int(label))
        for images, labels in Batches(source, 2, options=options).epoch(0)
        for image, label in zip(images.numpy(), labels.numpy(), strict=True)
    ]


def test_samples_and_batches_mean_the_same():
    def one_by_one():
        yield from ((chw(10 * i + 10), i % 2) for i in range(5))

    def in_batches():
        drawn = list(one_by_one())
        yield from (drawn[:2], drawn[2:4], drawn[4:])

    expected = [(10, 0), (20, 1), (30, 0), (40, 1), (50, 0)]
    for reader in (one_by_one, in_batches):
        assert greys(from_reader(reader, num_classes=2, num_examples=5)) == expected


def test_pairs_of_arrays_and_of_files():
    def png(value):
        return encode(chw(value).transpose(1, 2, 0).astype(np.uint8))

    for make in (chw, png):
        pairs = pairs_from_reader(
            lambda make=make: iter([(make(10), make(20), 1), (make(30), make(40), 0)])
        )
        assert pairs.same.tolist() == [True, False]
        assert pairs.decoded((8, 6)).mean(axis=(1, 2, 3)).tolist() == [10, 20, 30, 40]


def test_wrong_pairs_say_which():
    with pytest.raises(ValueError, match="at pair 1. Received: "):
        good, bad = (chw(9), chw(9), 1), (chw(9), 1)
        pairs_from_reader(lambda: iter([good, bad]))
    with pytest.raises(ValueError, match="pixels in 0...255"):
        pairs_from_reader(lambda: iter([(chw(-0.5), chw(0.5), 1)]))


def test_base64_reader_yields_samples_and_is_an_indexed_source(tmp_path):
    images = [encode(np.full((8, 6, 3), 50 * value, "u1")) for value in range(3)]
    lines = [encode_line(image, label) for label, image in enumerate(images)]
    (tmp_path / "dataset.part1").write_bytes(b"".join(lines[:2]))
    (tmp_path / "dataset.part2").write_bytes(lines[2])
    (tmp_path / "file_list.txt").write_text("dataset.part1\ndataset.part2\n")
    reader = base64_reader.train(tmp_path, num_classes=3)
    read = [(image.shape, image.mean(), label) for image, label in reader()]
    assert read == [((3, 8, 6), 0, 0), ((3, 8, 6), 50, 1), ((3, 8, 6), 100, 2)]
    source = from_reader(reader)
    assert (source.num_examples, source.num_classes) == (3, 3)
    assert greys(source) == [(0, 0), (50, 1), (100, 2)]
    # Otherwise, a line of a kilobyte could take gigabytes.
    line = encode_line(encode(np.zeros((4100, 4000), "u1")), 0)
    (tmp_path / "dataset.part2").write_bytes(line)
    with pytest.raises((ValueError, tf.errors.OpError), match="megapixels"):
        list(reader())
