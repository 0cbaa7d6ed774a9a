"""Readers in PLSC's form: of samples, of batches, of pairs, of base64 files."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers import python
from plsc_tf.utils import base64_reader


def chw(value):
    """A picture of one grey, as PLSC's readers yield it: float32 [3, 8, 6]."""
    return np.full((3, 8, 6), value, np.float32)


def greys(source):
    options = PipelineOptions(image_size=(8, 6), augmentation=None, shuffle=False)
    batches = Batches(source, 2, options=options)
    return [
        (int(image.mean()), int(label))
        for images, labels in batches.epoch(0)
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
        source = python.from_reader(reader, num_classes=2, num_examples=5)
        assert greys(source) == expected


def test_an_iterator_is_refused():
    def reader():
        yield chw(10), 0

    with pytest.raises(ValueError, match="train_reader must be a function"):
        python.from_reader(reader())


def test_pairs_of_arrays_and_of_files():
    def jpeg(value):
        file = io.BytesIO()
        Image.new("RGB", (6, 8), (value,) * 3).save(file, "PNG")
        return file.getvalue()

    for make in (chw, jpeg):
        pairs = python.pairs_from_reader(
            lambda make=make: iter([(make(10), make(20), 1), (make(30), make(40), 0)])
        )
        assert pairs.same.tolist() == [True, False]
        assert pairs.decoded((8, 6)).mean(axis=(1, 2, 3)).tolist() == [10, 20, 30, 40]


def test_wrong_pairs_say_which():
    with pytest.raises(ValueError, match="at pair 1: "):
        good, bad = (chw(9), chw(9), 1), (chw(9), 1)
        python.pairs_from_reader(lambda: iter([good, bad]))
    with pytest.raises(ValueError, match="pixels in 0...255"):
        python.pairs_from_reader(lambda: iter([(chw(-0.5), chw(0.5), 1)]))


@pytest.fixture
def base64_files(tmp_path):
    lines = []
    for value in range(3):
        file = io.BytesIO()
        Image.new("RGB", (6, 8), (50 * value,) * 3).save(file, "PNG")
        lines.append(f"{base64.b64encode(file.getvalue()).decode()}\t{value}\n")
    (tmp_path / "dataset.part1").write_text("".join(lines[:2]))
    (tmp_path / "dataset.part2").write_text(lines[2])
    (tmp_path / "file_list.txt").write_text("dataset.part1\ndataset.part2\n")
    return tmp_path


def test_base64_reader_yields_samples_and_is_an_indexed_source(base64_files):
    reader = base64_reader.train(base64_files, num_classes=3)
    read = [(image.shape, image.mean(), label) for image, label in reader()]
    assert read == [((3, 8, 6), 0, 0), ((3, 8, 6), 50, 1), ((3, 8, 6), 100, 2)]
    source = python.from_reader(reader)
    assert (source.num_examples, source.num_classes) == (3, 3)
    assert greys(source) == [(0, 0), (50, 1), (100, 2)]
