"""mnist, cifar10, flowers, ms1m, casia, folder, lfw112, omniglot on small files."""

import gzip
import struct

import numpy as np
import pytest

from plsc_tf.data.load import info, load, load_val, names, open_source
from plsc_tf.data.readers.layouts import DataRequest
from tests.conversion import drawn
from tests.data.conftest import write_folders


def _request(folder, **fields):
    return DataRequest(dataset_dir=str(folder), **fields)


@pytest.fixture
def mnist_folder(tmp_path):
    pixels = np.arange(3 * 28 * 28, dtype=np.uint32).reshape(3, 28, 28).astype(np.uint8)
    images = idx(3, 28, 28, size=0) + pixels.tobytes()
    labels = struct.pack(">2i", 2049, 3) + bytes([7, 0, 9])
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    return tmp_path, pixels


def test_mnist_reads_idx_files(mnist_folder):
    folder, pixels = mnist_folder
    options = dict(batch_size=3, image_size=(28, 28), shuffle=False)
    batches = load("mnist", str(folder), **options)
    ((images, labels),) = batches
    np.testing.assert_array_equal(labels, [7, 0, 9])
    np.testing.assert_array_equal(images[..., 1], pixels)
    assert batches.num_classes == 10


def test_other_pixels_are_other_contents(mnist_folder):
    # A cache of decoded images must not take them for these.
    folder, pixels = mnist_folder
    before = open_source("mnist", _request(folder)).fingerprint()
    images = idx(3, 28, 28, size=0) + (255 - pixels).tobytes()
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
    assert open_source("mnist", _request(folder)).fingerprint() != before


def test_mnist_errors(mnist_folder):
    folder, _ = mnist_folder
    with pytest.raises(FileNotFoundError, match="has no t10k-images-idx3-ubyte or"):
        open_source("mnist", _request(folder, split="test"))
    with pytest.raises(ValueError, match="split must be one of train, test"):
        open_source("mnist", _request(folder, split="dev"))


def idx(*shape, size=2352):
    return struct.pack(">4I", 2051, *shape) + bytes(size)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"junk", r"idx3-ubyte(.gz)? is not an idx file or is cut off"),
        (idx(2**31, 28, 28), "header says 2147483648 x 28 x 28"),
        (idx(2, 28, 28), "header says 2 x 28 x 28; received 2352 bytes"),
        # Such rows are resized to as many rows as others have.
        (idx(3, 1, 5000, size=15_000), "at most 4096 pixels a side"),
    ],
)
def test_mnist_files_are_checked(mnist_folder, packed, data, message):
    folder, _ = mnist_folder
    name = folder / "train-images-idx3-ubyte.gz"
    if not packed:
        name.unlink()
        name = name.with_suffix("")
    name.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(ValueError, match=message):
        open_source("mnist", _request(folder))


# A file of 10 MB would unpack to 10 GB.
def test_mnist_unpacks_no_more_than_images_take(mnist_folder):
    folder, _ = mnist_folder
    packed = gzip.compress(idx(1 << 15, 64, 64, size=1 << 27))
    (folder / "train-images-idx3-ubyte.gz").write_bytes(packed)
    with pytest.raises(ValueError, match="32768 x 64 x 64; received 6815"):
        open_source("mnist", _request(folder))


def _cifar_batch(labels, value):
    planes = np.zeros((len(labels), 3, 32, 32), np.uint8)
    planes[:, 0], planes[:, 2] = value, 255
    rows = np.concatenate(
        [np.array(labels, np.uint8)[:, np.newaxis], planes.reshape(len(labels), -1)], 1
    )
    return rows.tobytes()


def test_cifar10_reads_binary_batches(tmp_path):
    for k in range(1, 6):
        (tmp_path / f"data_batch_{k}.bin").write_bytes(_cifar_batch([k, 9], k))
    source = open_source("cifar10", _request(tmp_path))
    assert (source.num_examples, source.num_classes) == (10, 10)
    np.testing.assert_array_equal(source.labels, [1, 9, 2, 9, 3, 9, 4, 9, 5, 9])
    item = list(source.epoch(seed=0, epoch=0, shuffle=False))[4]
    assert item["image"][5, 6].numpy().tolist() == [3, 0, 255]
    assert source.describe(4).endswith(f"record 0 of {tmp_path}/data_batch_3.bin")
    (tmp_path / "data_batch_2.bin").write_bytes(b"123")
    with pytest.raises(ValueError, match="data_batch_2.bin must be a CIFAR-10"):
        open_source("cifar10", _request(tmp_path))


def test_cifar10_reads_class_folders_and_says_what_is_missing(tmp_path):
    write_folders(tmp_path / "test", ["cat", "dog"])
    source = open_source("cifar10", _request(tmp_path, split="test"))
    assert source.class_names == ("cat", "dog")
    with pytest.raises(FileNotFoundError, match="no data_batch_1.bin, and no train/"):
        open_source("cifar10", _request(tmp_path))


@pytest.mark.parametrize("name", ["folder", "flowers", "lfw112"])
def test_class_folders_with_and_without_splits(tmp_path, name):
    write_folders(tmp_path, ["rose", "daisy"])
    assert open_source(name, _request(tmp_path)).class_names == ("daisy", "rose")
    with pytest.raises(FileNotFoundError, match="has no val/.* Found: daisy/, rose/"):
        open_source(name, _request(tmp_path, split="val"))
    write_folders(tmp_path / "train", ["tulip"])
    write_folders(tmp_path / "val", ["aster"])
    assert open_source(name, _request(tmp_path)).class_names == ("tulip",)
    assert open_source(name, _request(tmp_path, split="val")).class_names == ("aster",)


@pytest.mark.parametrize("name", ["ms1m", "casia", "image_list"])
def test_lists_and_records(tmp_path, name):
    write_folders(tmp_path / "images", ["a"])
    (tmp_path / "label.txt").write_text("images/a/0.png 1\n")
    (tmp_path / "label_val.txt").write_text("images/a/0.png 0\nimages/a/0.png 4\n")
    assert open_source(name, _request(tmp_path)).num_classes == 2
    assert open_source(name, _request(tmp_path, split="val")).num_classes == 5


OTHER_FILES = ("base64_text", "hugging_face", "lmdb", "mock", "webdataset")
TAKE_RECORDS = [name for name in names() if name not in OTHER_FILES]


@pytest.mark.parametrize("name", TAKE_RECORDS)
def test_train_files_are_tfrecords(tmp_path, name):
    drawn.write_file(tmp_path / "faces-00", [(b"x", 1), (b"x", 2)])
    request = _request(tmp_path, train_files=("faces-*",), labels_offset=1)
    source = open_source(name.upper(), request)
    items = list(source.epoch(seed=0, epoch=0, shuffle=False))
    assert [int(item["label"]) for item in items] == [0, 1]
    assert (source.name, source.num_classes) == (name, info(name).num_classes)
    with pytest.raises(FileNotFoundError, match="No file matches 'x' in train_files"):
        open_source(name, _request(tmp_path, train_files=("x",)))


def test_drawn_pictures_are_not_taken_for_the_files_that_were_named(tmp_path):
    with pytest.raises(ValueError, match=r"mock draws.*train_files=x,y.*dataset_name"):
        open_source("mock", _request(tmp_path, train_files=("x", "y")))


def test_omniglot_holds_five_alphabets_out(tmp_path):
    names = [f"Latin/character{k:02d}" for k in range(1, 4)]
    held_out = [f"Greek/character{k:02d}" for k in range(1, 16)]
    held_out += [f"Korean/character{k:02d}" for k in range(1, 6)]
    write_folders(tmp_path, names)
    write_folders(tmp_path, held_out, count=20)
    assert open_source("omniglot", _request(tmp_path)).class_names == tuple(names)
    val = open_source("omniglot", _request(tmp_path, split="val"))
    assert val.class_names == tuple(sorted(held_out))
    pairs = load_val("omniglot", _request(tmp_path), "held_out")
    assert len(pairs) == 6000 and pairs.same.sum() == 3000
    files = np.array([file.rsplit("/", 3)[1:] for file in pairs.files])
    left, right = files[pairs.left], files[pairs.right]
    np.testing.assert_array_equal(left[:, 0], right[:, 0])
    np.testing.assert_array_equal(left[:, 1] == right[:, 1], pairs.same)
    both = np.sort(np.stack([pairs.left, pairs.right], 1), axis=1)
    assert len(np.unique(both, axis=0)) == 6000 and np.all(both[:, 0] != both[:, 1])
    write_folders(tmp_path / "few", held_out[:2], count=2)
    with pytest.raises(ValueError, match="Too few images"):
        load_val("omniglot", _request(tmp_path / "few"), "held_out")


@pytest.mark.parametrize(
    ("name", "folder", "fields", "examples", "classes"),
    [
        ("lfw112", "lfw112", {}, 8293, 3689),
        ("omniglot", "omniglot_background", {}, 16280, 814),
        ("flowers", "flower_photos", {}, 1000, 5),
        ("cifar10", "cifar10_jpeg", {"split": "test"}, 5000, 10),
    ],
)
def test_the_real_images(data_dir, name, folder, fields, examples, classes):
    source = open_source(name, _request(data_dir / folder, **fields))
    assert source.num_examples == examples
    assert source.num_classes == classes


def test_pairs_of_the_real_images(data_dir):
    pairs = load_val("lfw112", _request(data_dir / "lfw112"), "pairs_val")
    np.testing.assert_array_equal(pairs.same.reshape(20, 60).sum(1), [60, 0] * 10)
    assert pairs.decoded().shape[1:] == (112, 112, 3)
    omniglot = _request(data_dir / "omniglot_background")
    assert len(load_val("omniglot", omniglot, "held_out")) == 6000
