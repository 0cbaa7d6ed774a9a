"""TFRecord frames and examples, against TensorFlow's and protobuf's."""

import struct

import pytest
import tensorflow as tf

from plsc_tf.data.conversion.inputs import FilesInput
from plsc_tf.data.readers import tfrecord
from plsc_tf.data.readers.formats import TFRECORD
from tests.conversion import drawn

EXAMPLES = drawn.images(20)


@pytest.fixture
def path(tmp_path):
    return drawn.write_records(tmp_path, EXAMPLES, files=1)[0]


@pytest.mark.parametrize("label", [0, 1, 127, 128, 2**31, 2**63 - 1, -1])
@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 20_000, 70_000])
def test_examples_are_protobufs_bytes(label, size):
    image, more = bytes(size), {"image/format": b"png"}
    example = tf.train.Example.FromString(drawn.example(image, label, **more))
    ours = tfrecord.encode_example(image, b"png", label)
    assert tf.train.Example.FromString(ours) == example
    assert ours == example.SerializeToString(deterministic=True)
    assert tfrecord.parse_example(ours) == (image, label)


def test_frames_are_tensorflows_bytes(tmp_path):
    payloads = [b"", b"a", bytes(range(256)) * 300]
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for payload in payloads:
            writer.write(payload)
    assert b"".join(map(tfrecord.frame, payloads)) == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize(
    ("at", "value"), [(0, struct.pack("<Q", 2**60)), (8, b"\x00\x00\x00\x00")]
)
def test_a_damaged_length_is_named(path, at, value):
    drawn.overwrite(path, at, value)
    words = f"{path} is damaged at record 0, byte 0.*checksum of the record's length"
    for read in (tfrecord.read_records, tfrecord.find_records):
        with pytest.raises(ValueError, match=words):
            list(read(path))


def test_damaged_data_is_named_by_the_converter(path):
    drawn.overwrite(path, 40, b"\x00\x01\x02\x03")
    with pytest.raises(ValueError, match=f"{path}, record 0: it is damaged: its check"):
        list(FilesInput(TFRECORD, [path]).batches(TFRECORD, {}, 1))


def test_an_example_without_an_image_is_not_converted(path):
    # Whoever made the file could otherwise get anything into the verified shards.
    drawn.write_file(path, [(b"a password", 0)])
    with pytest.raises(ValueError, match="record 0: expected a JPEG, PNG or GIF file"):
        list(FilesInput(TFRECORD, [path]).batches(TFRECORD, {}, 1))


def test_a_length_beyond_the_file_is_not_allocated(tmp_path):
    length = struct.pack("<Q", 2**62)
    checksum = struct.pack("<I", tfrecord.masked_checksum(length))
    good = tfrecord.frame(b"good")
    (tmp_path / "long").write_bytes(good + length + checksum + bytes(100))
    with pytest.raises(ValueError, match=f"record 1 at byte {len(good)} ends beyond"):
        list(tfrecord.read_records(str(tmp_path / "long")))


@pytest.mark.parametrize("cut", [1, 5, 20, 100])
def test_files_that_are_cut_off_are_refused(path, cut):
    with open(path, "r+b") as file:
        file.truncate(file.seek(0, 2) - cut)
    for read in (tfrecord.read_records, tfrecord.find_records):
        with pytest.raises(ValueError, match=r"is cut off: record 19 at byte \d+ ends"):
            list(read(path))


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (b"\xff\xff\xff", "it is not a tf.train.Example"),
        (b"", "Received the keys: none"),
        (
            tfrecord.encode_example(b"x", b"png", 3).replace(b"class", b"CLASS"),
            "Received the keys: image/CLASS/label, image/encoded, image/format",
        ),
    ],
)
def test_wrong_examples_are_refused(payload, words):
    with pytest.raises(ValueError, match=words):
        tfrecord.parse_example(payload)


def test_another_label_leaves_the_rest():
    payload = tfrecord.encode_example(b"x", b"png", 3)
    record = tfrecord.with_label(tfrecord.frame(payload), 99)
    expected = tf.train.Example.FromString(payload)
    expected.features.feature["image/class/label"].int64_list.value[:] = [99]
    assert tf.train.Example.FromString(tfrecord.payload_of(record[12:])) == expected
