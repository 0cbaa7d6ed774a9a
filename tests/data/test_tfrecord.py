"""TFRecords: all records once per epoch, counted without reading them."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.tfrecord import find_records, tfrecords
from tests.conversion import drawn

SMALL = PipelineOptions(image_size=(12, 10))


def parse(record):
    keys = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    found = tf.io.parse_single_example(record, keys)
    return found["image/encoded"], found["image/class/label"]


@pytest.fixture
def files(tmp_path, picture):
    paths = []
    for part, numbers in enumerate([range(7), range(7, 8), range(8, 13)]):
        paths.append(str(tmp_path / f"part-{part}"))
        drawn.write_file(paths[-1], [(picture(k % 4, k), k % 4) for k in numbers])
    return paths


def test_counts_and_reads_all_files(files, picture):
    source = tfrecords(files, num_classes=4)
    assert source.num_examples == 13
    items = list(source.epoch(seed=0, epoch=0, shuffle=False))
    assert [int(item["index"]) for item in items] == list(range(13))
    assert items[8]["image"].numpy() == picture(0, 8)
    assert source.describe(8) == f"record 0 of {files[2]}"


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such file.*none"):
        tfrecords([str(tmp_path / "none")])
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ValueError, match="holds no records"):
        tfrecords([str(tmp_path / "empty")])


def test_label_out_of_range_names_file_and_record(files):
    with pytest.raises(ValueError, match=r"Label 3 at record \d of .*part-\d is outs"):
        list(Batches(tfrecords(files, num_classes=3), 4, options=SMALL))


def test_corrected_labels_count_though_a_copied_index_is_newer(tmp_path, picture):
    path = tmp_path / "part"
    for right in (0, 1):
        drawn.write_file(path, [(picture(k, k), right) for k in range(3)])
        begins, lengths = zip(*find_records(str(path)), strict=True)
        if not right:
            index = np.stack([begins, lengths, np.zeros(3, np.int64)], axis=1)
    before = tfrecords([str(path)], num_classes=2).contents()
    np.save(f"{path}.index.npy", index)
    source = tfrecords([str(path)], num_classes=2)
    assert source.contents() == before  # a run resumes with or without an index
    assert [record.label for record in source.records()] == [1, 1, 1]


def test_offset_and_damaged_record(files, tmp_path):
    source = tfrecords(files[1:2], labels_offset=2)
    assert int(next(iter(source.epoch(seed=0, epoch=0)))["label"]) == 7 % 4 - 2
    path = str(tmp_path / "foreign")
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(b"no example")
    with pytest.raises(ValueError, match="cannot be read: record 0 of .*foreign"):
        list(Batches(tfrecords([path]), 2))


def test_a_changed_byte_is_noticed_and_its_record_named(files):
    drawn.overwrite(files[2], 60, bytes([pathlib.Path(files[2]).read_bytes()[60] ^ 1]))
    with pytest.raises(ValueError, match="record 0 of .*part-2: it is damaged"):
        list(Batches(tfrecords(files), 4, options=SMALL))


def test_records_of_another_kind_are_parsed_by_a_function(files):
    def parse_fn(record):
        image, label = parse(record)
        return tf.io.decode_png(image, 3)[:, : 5 + label], label * 2

    source = tfrecords(files, parse_fn=parse_fn)
    items = list(source.epoch(seed=0, epoch=0, shuffle=False))
    assert [int(item["label"]) for item in items[:4]] == [0, 2, 4, 6]
    records = list(source.records())
    assert [r.image.shape for r in records[:4]] == [(12, 5 + k, 3) for k in range(4)]
    assert records[3].image[4, 4, 0] == 30 and source.labels[6] == 4
    assert sum(len(labels) for _, labels in Batches(source, 4, options=SMALL)) == 13


@pytest.mark.parametrize(
    ("returned", "received"),
    [
        (lambda image, label: (image, tf.one_hot(label, 4)), r"shape=\(4,\).*float32"),
        (lambda image, label: (tf.zeros([4, 4, 3]), label), r"shape=\(4, 4, 3.*float"),
        (lambda image, label: (image,), "Tensor"),
        (lambda image, label: (None, label), "None"),
    ],
)
def test_what_a_parse_fn_returns_is_checked(files, returned, received):
    with pytest.raises(ValueError, match=rf"\(image, label\).*Received: .*{received}"):
        tfrecords(files, parse_fn=lambda record: returned(*parse(record)))


def test_a_parse_fn_may_branch_on_what_a_record_holds(files):
    def doubled(label):
        if label > 1:
            label = label * 2
        return label

    def parse_fn(record):
        image, label = parse(record)
        if label == 0:
            image = tf.zeros([4, 4, 3], tf.uint8)
        else:
            image = tf.io.decode_png(image, 3)
        return image, doubled(label)

    records = list(tfrecords(files, parse_fn=parse_fn).records())
    assert [record.label for record in records[:4]] == [0, 1, 4, 6]
    assert [record.image.shape for record in records[:2]] == [(4, 4, 3), (12, 10, 3)]
