"""Workers that read their parts see exactly the batches of one machine."""

import concurrent.futures
import os
import platform
import shutil

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data import cache
from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.image_files import image_list
from plsc_tf.data.readers.python import from_generator
from plsc_tf.data.readers.tfrecord import tfrecords
from plsc_tf.data.sampling import Part
from plsc_tf.data.source import IndexedSource, in_python
from tests.conversion import drawn
from tests.marks import slow
from tests.small_disk import mounted

SIZE = (12, 10)
PLAIN = dict(shuffle=False, augmentation=None)
AUGMENTATION = Augmentation(flip=0.5, shift=0.2)


def _parts(batch_size, workers):
    share = -(-batch_size // workers)
    return [Part(k * share, (k + 1) * share) for k in range(workers)]


def _batches(source, batch_size, **options):
    options = {"image_size": SIZE, "augmentation": AUGMENTATION, **options}
    return Batches(source, batch_size, options=PipelineOptions(**options))


def _sliced(batch, part):
    """What a worker must see of a batch of one machine, in numpy."""
    images, labels = (each.numpy() for each in batch)
    positions = np.arange(part.first, part.last)
    shown = positions % len(labels)
    return [images[shown], labels[shown], np.float32(positions < len(labels))]


def _check(made, workers, epoch=1, start_step=0, parts_made=None):
    """Compares all workers to one machine; each may have `Batches` of its own."""
    expected = list(made.epoch(epoch))[start_step:]
    assert expected
    for part in _parts(made.batch_size, workers):
        made = parts_made() if parts_made else made
        found = made.epoch(epoch, start_step, part=part)
        assert found.element_spec == (
            tf.TensorSpec([part.size, *SIZE, 3], tf.uint8),
            tf.TensorSpec([part.size], tf.int64),
            tf.TensorSpec([part.size], tf.float32),
        )
        found = list(found)
        assert len(found) == len(expected)
        for one, batch in zip(found, expected, strict=True):
            for mine, wanted in zip(one, _sliced(batch, part), strict=True):
                np.testing.assert_array_equal(mine.numpy(), wanted)


@pytest.mark.parametrize(
    ("batch_size", "workers", "start_step"),
    [
        slow(6, 2, 0),  # the last batch has 2 of 6
        slow(7, 3, 1),  # padded to 9
        (18, 4, 0),  # padded to 20; the last 2 are shown ten times
        (1, 2, 17),  # a worker has padding only
    ],
)
def test_parts_slice_the_padded_batches(list_folder, batch_size, workers, start_step):
    made = _batches(image_list(str(list_folder)), batch_size)
    _check(made, workers, start_step=start_step)


def _drawn(count=1300):
    pixels = np.random.default_rng(0).integers(0, 256, (count, *SIZE, 3), np.uint8)
    labels = np.random.default_rng(1).integers(0, 40, count)
    return IndexedSource("drawn", labels, lambda k: tf.gather(pixels, k))


def test_parts_of_several_blocks():
    # Parts of 550 are made in blocks of 110, the batch of 1,099 in blocks of 157; the
    # last position shows the batch's first example.
    _check(_batches(_drawn(), 1099), 2)


@pytest.mark.parametrize("sampling", ["per_identity", slow("class_balanced")])
def test_sampling(sampling):
    options = dict(sampling=sampling, images_per_identity=2)
    _check(_batches(_drawn(100), 32, **options), 3, start_step=1)


@pytest.mark.parametrize("kind", ["cache_dir", slow("use_caching")])
def test_caches(list_folder, tmp_path, kind):
    options = {kind: kind == "use_caching" or str(tmp_path / "cache")}
    plain = _batches(image_list(str(list_folder)), 7)
    _check(plain, 2, parts_made=lambda: _batches(plain.source, 7, **options))


def test_bad_records_have_the_same_substitutes(list_folder):
    (list_folder / "images/11.png").write_bytes(b"no image")
    (list_folder / "images/12.png").unlink()
    _check(_batches(image_list(str(list_folder)), 7, skip_bad_records=True), 2)


def _stream(picture, kind, count=20, bad=()):
    def examples():
        for number in range(count):
            image = picture(number % 5, number)
            if kind == "arrays":
                # Of different sizes.
                image = np.full((12 + number % 3, 10, 3), 10 * number, np.uint8)
            yield b"no image" if number in bad else image, number % 5

    return from_generator(examples, num_classes=5)


@pytest.mark.parametrize(
    ("kind", "batch_size", "start_step"), [slow("encoded", 3, 4), ("arrays", 18, 1)]
)
def test_streams_of_unknown_length(picture, kind, batch_size, start_step):
    source = _stream(picture, kind)
    assert source.num_examples is None
    made = _batches(source, batch_size, shuffle_buffer_size=8)
    _check(made, 2, start_step=start_step)


def test_only_the_own_records_are_fetched():
    pixels = np.zeros((24, *SIZE, 3), np.uint8)
    fetched = []

    def look(index):
        fetched.extend(index.tolist())
        return pixels[index]

    def fetch(index):
        return in_python(look, [index], tf.uint8, [None, *SIZE, 3])

    source = IndexedSource("watched", np.arange(24), fetch)
    made = _batches(source, 8, augmentation=None)
    for part in _parts(8, 2):
        fetched.clear()
        seen = [labels.numpy() for _, labels, _ in made.epoch(0, part=part)]
        # The label is the index.
        assert sorted(fetched) == sorted(np.concatenate(seen).tolist())
        assert len(fetched) == 12


@pytest.mark.parametrize("kind", ["list", "stream"])
def test_a_worker_names_only_its_own_bad_example(list_folder, picture, kind):
    # Example 9 is at position 3 of batch 1.
    (list_folder / "images/09.png").write_bytes(b"no image")
    source = image_list(str(list_folder))
    if kind == "stream":
        source = _stream(picture, "encoded", bad=[9])
    made = _batches(source, 6, **PLAIN)
    first, second = _parts(6, 2)
    assert len(list(made.epoch(0, part=first))) == 4
    assert made.explain(0, part=first) is None
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(made.epoch(0, part=second))
    named = "line 10 .*09.png" if kind == "list" else "example 9 of generator"
    for start_step in (0, 1):
        with pytest.raises(ValueError, match=named):
            raise made.explain(0, start_step, part=second)
    assert made.explain(0, part=second, max_steps=1) is None


def test_a_stream_that_breaks_off_is_named_with_its_batch():
    def examples():
        for number in range(9):
            if number == 8:
                raise RuntimeError("broken off")
            yield np.zeros((*SIZE, 3), np.uint8), 0

    made = _batches(from_generator(examples, num_classes=1), 6, **PLAIN)
    error = made.explain(0, part=Part(0, 3))
    assert "cannot be read beyond position 6...11 of epoch 0" in str(error)


def _filling(folder, wait):
    """Opens a cache on disk; `wait` is called in the middle of filling it."""
    pixels = np.arange(20 * 12 * 10 * 3).reshape(20, 12, 10, 3).astype(np.uint8)
    source = IndexedSource("pixels", np.arange(20), lambda k: tf.gather(pixels, k))

    def blocks():
        yield pixels[:10], np.arange(10)
        wait()
        yield pixels[10:], np.arange(10, 20)

    spec = tf.TensorSpec([None, 12, 10, 3], tf.uint8), tf.TensorSpec([None], tf.int64)
    blocks = tf.data.Dataset.from_generator(blocks, output_signature=spec)
    kept = cache.on_disk(source, blocks, str(folder), "as they are")
    item = kept.read({"index": tf.range(20, dtype=tf.int64)})
    np.testing.assert_array_equal(item["image"], pixels)
    return item["label"].numpy().tolist()


def test_of_several_processes_one_fills_a_cache(tmp_path):
    fills = []
    waits = [lambda: fills.append(1)] * 3
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = list(pool.map(_filling, [tmp_path] * 3, waits, timeout=60))
    assert found == [list(range(20))] * 3
    assert len(fills) == 1
    place, _ = sorted(tmp_path.iterdir())
    assert sorted(os.listdir(place)) == ["labels.npy", "pictures.npy"]


def test_a_cache_on_a_full_disk_is_an_error(tmp_path):  # and no signal
    with mounted(tmp_path, "8k"), pytest.raises(OSError, match="No space left"):
        _filling(tmp_path, lambda: None)


def test_a_folder_without_locks_is_refused(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(cache.fcntl, "flock", no_locks)
    with pytest.raises(ValueError, match="has no locks: .*another cache_dir"):
        _filling(tmp_path, lambda: None)


def test_what_a_killed_process_left_of_a_cache_is_removed(tmp_path):
    def killed():
        # What stands on the disk when the process ends here.
        shutil.copytree(tmp_path / "cache", tmp_path / "killed")
        raise KeyError

    with pytest.raises(tf.errors.OpError):
        _filling(tmp_path / "cache", killed)
    (left,) = (tmp_path / "killed").glob(f"*{platform.node()}*")
    assert (left / "pictures.npy").exists()
    assert _filling(tmp_path / "killed", lambda: None) == list(range(20))
    assert not left.exists()


def test_fingerprints_tell_data_apart_and_not_machines(tmp_path, picture):
    examples = [(picture(number % 5, number), number % 5) for number in range(6)]

    def fingerprint(folder, examples, batch_size=2, **options):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "records"
        drawn.write_file(path, examples)
        os.utime(path, (1, len(folder)))
        source = tfrecords([str(path)], num_classes=5)
        return _batches(source, batch_size, **options).fingerprint()

    here = fingerprint("a", examples)
    assert here.startswith("examples: 6, classes: 5, ")
    assert fingerprint("copy", examples) == here
    machine = dict(cache_dir="elsewhere", num_preprocessing_threads=3)
    assert fingerprint("machine", examples, **machine) == here
    others = [
        fingerprint("fewer", examples[1:]),
        fingerprint("turned", examples[::-1]),
        fingerprint("labels", [(image, 4 - label) for image, label in examples]),
        fingerprint("batch", examples, 3),
        fingerprint("seed", examples, seed=1),
    ]
    assert len({here, *others}) == 6


def test_fingerprints_of_lists_and_streams(list_folder, picture):
    made = _batches(image_list(str(list_folder)), 4)
    here = made.fingerprint()
    lines = (list_folder / "label.txt").read_text().splitlines()
    (list_folder / "label.txt").write_text("\n".join([*lines[:-1], "images/19.png 3"]))
    assert _batches(image_list(str(list_folder)), 4).fingerprint() != here
    tolerant = _batches(made.source, 4, skip_bad_records=True)
    assert tolerant.source.contents() == made.source.contents()
    stream = _batches(_stream(picture, "encoded"), 4).fingerprint()
    assert stream.startswith("examples: unknown, classes: 5, ")
