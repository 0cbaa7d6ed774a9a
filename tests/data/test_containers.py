"""Images packed by other libraries: lmdb, pyarrow, webdataset and zipfile."""

import os
import zipfile

import lmdb
import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plsc_tf.data.checks.listings import open_listing
from plsc_tf.data.load import load
from plsc_tf.data.readers.layouts import DataRequest
from tests.data.conftest import encoded, opened

LABELS = [0, 2, 1, 1, 0, 2, 2]
IMAGES = [encoded(label, number) for number, label in enumerate(LABELS)]
# The columns of Hugging Face's data sets.
ROWS = {"image": [{"bytes": one, "path": None} for one in IMAGES], "label": LABELS}


def write_parquet(folder):
    name = folder / "train-00000-of-00001.parquet"
    pq.write_table(pa.table(ROWS), name, row_group_size=3)


def write_arrow(folder):
    """What `datasets.DatasetDict.save_to_disk` writes: a stream of batches."""
    table = pa.table(ROWS)
    name = str(folder / "data-00000-of-00001.arrow")
    with pa.OSFile(name, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=3)


def write_lmdb(folder, **changes):
    with lmdb.open(str(folder / "faces.lmdb"), subdir=False) as environment:
        with environment.begin(write=True) as transaction:
            keys = [b"%08d" % number for number in range(len(LABELS))]
            for key, image, label in zip(keys, IMAGES, LABELS, strict=True):
                transaction.put(key, msgpack.packb((image, b"feature", label)))
            for key, value in {"__keys__": keys, "__classnum__": 3, **changes}.items():
                transaction.put(key.encode(), msgpack.packb(value))


def write_shards(folder):
    """Two shards of WebDataset, of four and three images, and one of a test split."""
    library = pytest.importorskip("webdataset", reason="pip install '.[dev]'")
    shards = {"train-0": range(4), "train-1": range(4, 7), "test-0": [1]}
    for name, rows in shards.items():
        with library.TarWriter(str(folder / f"{name}.tar")) as file:
            for row in rows:
                sample = {"png": IMAGES[row], "cls": LABELS[row], "json": {"age": row}}
                file.write({"__key__": f"people/{row:04d}", **sample})


def write_zip(folder):
    """A list and its images."""
    lines = [f"{row}.png {label}\n" for row, label in enumerate(LABELS)]
    with zipfile.ZipFile(folder / "faces.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("label.txt", "".join(lines))
        for row, image in enumerate(IMAGES):
            file.writestr(f"{row}.png", image)


WRITERS = {
    "lmdb": ("lmdb", write_lmdb, ""),
    "parquet": ("hugging_face", write_parquet, ""),
    "arrow": ("hugging_face", write_arrow, ""),
    "shards": ("webdataset", write_shards, ""),
    "zip": ("image_list", write_zip, "faces.zip"),
}


@pytest.fixture(params=WRITERS)
def packed(request, tmp_path):
    """(name of the data set, folder of its files or the archive)."""
    name, write, archive = WRITERS[request.param]
    write(tmp_path)
    return name, tmp_path / archive


def test_the_images_and_labels_come_back_in_any_order(packed):
    name, folder = packed
    source = opened(name, folder)
    assert (source.num_examples, source.num_classes) == (7, 3)
    np.testing.assert_array_equal(source.labels, LABELS)
    assert [record.image for record in source.records(start=2)] == IMAGES[2:]
    assert str(folder) in source.describe(4)
    epoch = list(source.epoch(seed=3, epoch=1, shuffle=True))
    seen = [int(item["index"]) for item in epoch]
    assert sorted(seen) == list(range(7)) != seen
    assert [item["image"].numpy() for item in epoch] == [IMAGES[k] for k in seen]
    resumed = source.epoch(seed=3, epoch=1, shuffle=True, start=5)
    assert [int(item["index"]) for item in resumed] == seen[5:]
    assert opened(name, folder).fingerprint() == source.fingerprint()


def test_the_check_and_the_pipeline_read_them(packed):
    name, folder = packed
    listing = open_listing(name, DataRequest(dataset_dir=str(folder)))
    assert sorted(item.label for item in listing.items(None)) == sorted(LABELS)
    ((pixels, labels),) = load(name, folder, batch_size=7, image_size=(12, 10))
    np.testing.assert_array_equal(np.rint(pixels[:, 1, 1, 0] / 10), labels)


def parquet_of(folder, **columns):
    pq.write_table(pa.table(columns), folder / "train.parquet")


def cut_lmdb(folder):
    write_lmdb(folder, more=bytes(1 << 18))
    file = folder / "faces.lmdb"
    os.truncate(file, file.stat().st_size // 2)


def forge_arrow(folder):
    ends = np.int32([0, 1])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"p")]
    image = pa.Array.from_buffers(pa.binary(), 1, buffers)
    batch = pa.record_batch([image, pa.array([0])], ["image", "label"])
    with pa.ipc.new_stream(folder / "train.arrow", batch.schema) as file:
        ends[1] = 9999  # The image would contain any memory, such as a password.
        file.write_batch(batch)


DAMAGES = {
    "no LMDB": (
        "lmdb",
        lambda f: (f / "faces.lmdb").write_bytes(b"no" * 9999),
        "faces.lmdb: .*Copy the LMDB file again",
    ),
    "a cut LMDB": ("lmdb", cut_lmdb, "faces.lmdb is cut off"),
    "a FIFO as LMDB": ("lmdb", lambda f: os.mkfifo(f / "faces.lmdb"), "FIFO"),
    "a FIFO as Parquet": (
        "hugging_face",
        lambda f: os.mkfifo(f / "train.parquet"),
        "train.parquet is not a file, but a FIFO",
    ),
    "other keys": ("lmdb", lambda f: write_lmdb(f, __keys__=["text"]), "must be bytes"),
    "no classes": (
        "lmdb",
        lambda f: write_lmdb(f, __classnum__="three"),
        "Classes of .*expected a value of msgpack. Received: type=str",
    ),
    "no images": (
        "hugging_face",
        lambda f: parquet_of(f, picture=[b"p"], label=[1]),
        r"column image or img or jpg or png of encoded images. Received: picture \(bin",
    ),
    "labels as text": (
        "hugging_face",
        lambda f: parquet_of(f, image=[b"p"], label=["1"]),
        "column label or labels or cls of whole numbers",
    ),
    "a missing label": (
        "hugging_face",
        lambda f: parquet_of(f, image=[b"p", b"q"], label=[1, None]),
        "train.parquet has rows without labels",
    ),
    "an image beyond the file": ("hugging_face", forge_arrow, "must be a sound Parq"),
    "a cut Parquet file": (
        "hugging_face",
        lambda f: (f / "train.parquet").write_bytes(b"PAR1" * 9),
        "train.parquet must be a sound Parquet or Arrow file",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_named(tmp_path, damage):
    name, write, message = DAMAGES[damage]
    write(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        opened(name, tmp_path)


def test_a_damaged_image_is_named_when_it_is_read(tmp_path):
    parquet_of(tmp_path, image=[b"p", None], label=[0, 1])
    source = opened("hugging_face", tmp_path)
    with pytest.raises(Exception, match=r"record 1 of .*parquet: it has no image"):
        list(source.records())
    write_lmdb(tmp_path, **{"00000003": "no list"})
    source = opened("lmdb", tmp_path)
    with pytest.raises(Exception, match="record 3 of .*faces.lmdb: .*expected"):
        list(source.records())


def test_no_file_of_the_split(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no train\*.parquet or train\*.arrow"):
        opened("hugging_face", tmp_path)
    write_parquet(tmp_path)
    pq.write_table(pa.table(ROWS).slice(0, 2), tmp_path / "test.parquet")
    assert opened("hugging_face", tmp_path, split="test").num_examples == 2


def test_what_datasets_keeps_beside_the_data_is_left_out(tmp_path):
    write_arrow(tmp_path)
    file = tmp_path / "data-00000-of-00001.arrow"
    (tmp_path / "cache-3f2a.arrow").write_bytes(file.read_bytes())
    assert opened("hugging_face", tmp_path).num_examples == 7
