"""Batches: the order, resuming, augmentation, caching and errors that name files."""

import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.image_files import image_list
from plsc_tf.data.readers.packed import PackedFiles, packed_source
from plsc_tf.data.readers.python import from_generator
from plsc_tf.data.source import IndexedSource
from tests.data.conftest import encoded, opened
from tests.data.test_zip_archives import zipped
from tests.marks import slow

SIZE = (12, 10)
AUGMENTATION = Augmentation(flip=0.5, shift=0.2, color_jitter=0.2)


@pytest.fixture
def batches(list_folder):
    def make(batch_size=6, **options):
        options = PipelineOptions(**{"image_size": SIZE, **options})
        return Batches(image_list(str(list_folder)), batch_size, options=options)

    return make


def _all(dataset):
    images, labels = zip(*dataset, strict=True)
    return [x.numpy() for x in images], [y.numpy() for y in labels]


def _whole(dataset):
    return [np.concatenate(column) for column in _all(dataset)]


def _numbers(dataset):
    return _whole(dataset)[0][:, 3, 3, 1].tolist()


def test_shapes_counts_and_spec(batches):
    made = batches()
    images, labels = _all(made.epoch(0))
    assert [x.shape for x in images] == [(6, 12, 10, 3)] * 3 + [(2, 12, 10, 3)]
    assert images[0].dtype == np.uint8 and labels[0].dtype == np.int64
    assert (made.num_examples, made.num_classes, len(made)) == (20, 5, 4)
    assert made.steps_per_epoch == 4 and made.image_size == SIZE
    assert made.epoch(0).element_spec == (
        tf.TensorSpec([None, *SIZE, 3], tf.uint8),
        tf.TensorSpec([None], tf.int64),
    )
    # The red channel says the label.
    for x, y in zip(images, labels, strict=True):
        np.testing.assert_array_equal(x[:, 3, 3, 0], 10 * y)


def test_each_epoch_holds_each_example_once_in_another_order(batches):
    made = batches()
    orders = [_numbers(made.epoch(epoch)) for epoch in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert all(sorted(order) == list(range(20)) for order in orders)
    assert _numbers(batches(seed=1).epoch(0)) != orders[0]
    assert _numbers(batches(shuffle=False).epoch(3)) == list(range(20))


def test_resume_gives_exactly_the_rest_of_the_epoch(batches):
    made, resumed = (batches(augmentation=AUGMENTATION) for _ in range(2))
    whole = _whole(made.epoch(3))
    for step in (1, 3):
        rest = _whole(resumed.epoch(3, start_step=step))
        np.testing.assert_equal([column[6 * step :] for column in whole], rest)
    assert not list(resumed.epoch(3, start_step=4))


def test_neither_global_seed_nor_thread_count_changes_anything(batches):
    whole = _whole(batches(augmentation=AUGMENTATION).epoch(1))
    tf.random.set_seed(5)
    one = dict(num_preprocessing_threads=1, num_parallel_batches=1)
    made = batches(augmentation=AUGMENTATION, prefetch_buffer_size=1, **one)
    np.testing.assert_equal(whole, _whole(made.epoch(1)))


def test_caching_never_changes_a_picture(batches, list_folder):
    options = dict(augmentation=AUGMENTATION, image_size=(8, 8))
    cached, plain = batches(**options, use_caching=True), batches(**options)
    epochs = [_whole(plain.epoch(epoch)) for epoch in (0, 1)]
    np.testing.assert_equal(_whole(cached.epoch(0)), epochs[0])
    # The files are read once.
    for path in (list_folder / "images").iterdir():
        path.unlink()
    np.testing.assert_equal(_whole(cached.epoch(1)), epochs[1])
    rest = _whole(cached.epoch(1, start_step=2))
    np.testing.assert_equal(rest, [column[12:] for column in epochs[1]])


@pytest.mark.parametrize("use_caching", [False, True])
def test_corrupt_image_is_named_with_its_line(batches, list_folder, use_caching):
    (list_folder / "images/13.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(ValueError, match=r"label.txt, line 14 .*13.png.*Replace it"):
        list(batches(use_caching=use_caching))


def test_empty_image_and_missing_image_are_named(batches, list_folder):
    path = list_folder / "images/13.png"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="line 14 .*its 0 bytes are no JPEG"):
        list(batches())
    made = batches()
    path.unlink()
    with pytest.raises(ValueError, match="cannot be read: .*line 14 .*No such file"):
        list(made)


def test_explain_walks_the_epoch_that_failed(batches, list_folder):
    made = batches()
    position = _numbers(made.epoch(4)).index(13)
    (list_folder / "images/13.png").write_bytes(b"x")
    assert "line 14" in str(made.explain(4, position // 6))
    assert "line 14" in str(made.explain(4, 0))
    assert made.explain(4, position // 6 + 1) is None
    assert made.explain(4, 0, max_steps=position // 6) is None


@pytest.mark.parametrize("use_caching", [False, slow(True)])
def test_the_next_good_record_replaces_a_bad(batches, list_folder, caplog, use_caching):
    (list_folder / "images/11.png").write_bytes(b"no image")
    # One that is not looked for when the list is opened.
    (list_folder / "images/12.png").unlink()
    made = batches(skip_bad_records=True, use_caching=use_caching)
    numbers = [_numbers(made.epoch(epoch)) for epoch in range(2)]
    assert numbers[0] != numbers[1]
    for order in numbers:
        assert sorted(order) == sorted([*range(11), *range(13, 20), 13, 13])
    assert sorted(made.source.skipped) == [11, 12]
    named = [r.message for r in caplog.records if "Skipped a bad" in r.message]
    assert len(named) == 2 and "12.png" in "".join(named)
    # A run that begins in the middle sees the same examples.
    resumed = batches(skip_bad_records=True, use_caching=use_caching)
    assert _numbers(resumed.epoch(1, start_step=2)) == numbers[1][12:]


def test_a_cache_on_disk_is_made_once_and_for_one_set(batches, list_folder, tmp_path):
    folder = tmp_path / "cache"
    options = dict(cache_dir=str(folder))
    made = batches(**options)
    np.testing.assert_equal(_whole(made.epoch(1)), _whole(batches().epoch(1)))
    assert len(list(folder.glob("*/labels.npy"))) == 1
    # Another process finds the pictures, and needs the files no more.
    for path in (list_folder / "images").iterdir():
        if path.stem in ("06", "12", "18"):
            path.unlink()
    again = batches(**options)
    np.testing.assert_array_equal(_numbers(again.epoch(1)), _numbers(made.epoch(1)))
    # A power failure, or another user of the folder, may have changed it.
    (labels,) = folder.glob("*/labels.npy")
    kept = labels.read_bytes()
    for content, words in ((b"", "is not a .npy file"), (kept[:-8], "is damaged")):
        labels.write_bytes(content.replace(b"(20,)", b"(19,)"))
        with pytest.raises(ValueError, match=words):
            batches(**options).epoch(1)
    labels.write_bytes(kept)
    # Another list is another cache.
    lines = (list_folder / "label.txt").read_text().splitlines()
    lines = [line for line in lines if line.split()[0][-6:-4] not in ("06", "12", "18")]
    (list_folder / "label.txt").write_text("\n".join(lines))
    assert len(_numbers(batches(**options).epoch(0))) == 17
    assert len(list(folder.glob("*/labels.npy"))) == 2


def test_a_cache_is_of_one_folder_and_one_numbering(list_folder, tmp_path, monkeypatch):
    # Otherwise, someone who shares the folder of caches, and calls data of the same
    # names "data" too, would have the next run train on their images.
    options, found = PipelineOptions(image_size=SIZE, cache_dir=str(tmp_path)), []
    for place in (tmp_path / "a", tmp_path / "b"):
        shutil.copytree(list_folder, place / "data")
        monkeypatch.chdir(place)
        found.append(_numbers(Batches(image_list("data"), 6, options=options).epoch(0)))
        first, *others = sorted((list_folder / "images").iterdir())
        for path in others:
            shutil.copy(first, path)
    assert len(set(found[0])) == 20 and len(set(found[1])) == 1
    # Nor may the archives of others have the same name.
    for place, number in (("a", 1), ("b", 2)):
        monkeypatch.chdir(tmp_path / place)
        archive = zipped(("train/cat/1.png", encoded(0, number)))
        pathlib.Path("data.zip").write_bytes(archive)
        source = opened("folder", "data.zip")
        ((images, _),) = Batches(source, 1, options=options).epoch(0)
        assert images.numpy().ravel()[1] == number
    packed = PackedFiles(["data/label.txt"], [1], *np.array([[0], [9]]))
    offsets = (packed_source("r", packed, labels_offset=k) for k in (0, 1))
    assert len({one.fingerprint() for one in offsets}) == 2


def test_when_all_records_are_bad_there_is_an_error(batches, list_folder):
    for path in (list_folder / "images").iterdir():
        path.write_bytes(b"no image")
    with pytest.raises(tf.errors.OpError, match="has no readable records"):
        list(batches(skip_bad_records=True).epoch(0))


def test_a_stream_is_neither_cached_on_disk_nor_searched_for_good_records(tmp_path):
    source = from_generator(lambda: iter([(b"an image", 0)]), num_examples=1)
    options = PipelineOptions(image_size=SIZE, cache_dir=str(tmp_path))
    with pytest.raises(ValueError, match="Set use_caching, or convert it to TFRecords"):
        Batches(source, 1, options=options).epoch(0)
    with pytest.raises(ValueError, match="plsc_tf.convert"):
        Batches(source, 1, options=PipelineOptions(skip_bad_records=True))


def test_augmentation_depends_on_the_epoch_and_not_on_the_batch_size():
    pixels = np.random.default_rng(0).integers(0, 256, (300, 12, 10, 3), np.uint8)
    source = IndexedSource("drawn", np.zeros(300), lambda k: tf.gather(pixels, k))
    options = PipelineOptions(image_size=SIZE, augmentation=AUGMENTATION, shuffle=False)

    large, small = (Batches(source, size, options=options) for size in (300, 7))
    whole = _whole(large.epoch(2))[0]
    np.testing.assert_array_equal(_whole(small.epoch(2))[0], whole)
    assert np.any(_whole(large.epoch(3))[0] != whole)


def test_numbers_that_are_not_given_suit_the_machine_and_the_batches():
    names = "num_parallel_batches prefetch_buffer_size num_preprocessing_threads"
    asked = PipelineOptions(image_size=(112, 112), **dict.fromkeys(names.split()))
    found = asked.for_batches_of(256)
    # 9.6 MB each: 27 fit 256 MiB.
    assert (found.prefetch_buffer_size, found.num_parallel_batches) == (27, 2)
    assert found.num_preprocessing_threads == len(os.sched_getaffinity(0))
    assert asked.for_batches_of(8).prefetch_buffer_size == 32
    assert asked.for_batches_of(100_000).prefetch_buffer_size == 2


@pytest.mark.parametrize(
    "options",
    [{"prefetch_buffer_size": 0}, {"seed": -1}, {"image_size": (0, 3)}]
    + [{"sampling": "balanced"}],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="Received"):
        PipelineOptions(**options)
    with pytest.raises(ValueError, match="batch_size must be positive"):
        Batches(None, 0)
