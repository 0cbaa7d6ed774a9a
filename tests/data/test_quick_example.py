"""Examples parsed by hand, beside protobuf."""

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data.records.quick_example import image_and_label
from plsc_tf.data.records.tfrecord import encode_example, parse_example


def _bytes(*values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def _ints(*values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _example(**features):
    keys = {"image": "image/encoded", "label": "image/class/label"}
    named = {keys.get(name, name): value for name, value in features.items()}
    return tf.train.Example(
        features=tf.train.Features(feature=named)
    ).SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_000, 16_384, 3_000_000])
@pytest.mark.parametrize("label", [0, 127, 128, 10**8, 2**63 - 1, -1])
def test_is_what_protobuf_finds(size, label):
    image = np.random.default_rng(size).bytes(size)
    for payload in (
        _example(image=_bytes(image), label=_ints(label)),
        _example(
            image=_bytes(image),
            label=_ints(label),
            other=_bytes(b"x" * 300),
            n=_ints(7),
        ),
        encode_example(image, b"jpeg", label),
    ):
        assert image_and_label(payload) == (image, label) == parse_example(payload)


def test_an_image_that_holds_the_keys_themselves():
    inner = encode_example(b"inner", b"jpeg", 3)
    payload = encode_example(inner, b"jpeg", 4)
    assert image_and_label(payload) == (inner, 4)


def test_labels_that_are_not_packed():
    # Field 1 of Int64List as single varints: tag 0x08.
    packed = _ints(300).SerializeToString()
    assert packed == b"\x1a\x04\x0a\x02\xac\x02"
    payload = _example(image=_bytes(b"abc"), label=_ints(300))
    loose = payload.replace(b"\x12\x06" + packed, b"\x12\x05\x1a\x03\x08\xac\x02")
    # One byte less in the entry and in the features.
    loose = bytes([loose[0], loose[1] - 1]) + loose[2:]
    at = loose.index(b"\x0a\x11image/class/label") - 1
    loose = loose[:at] + bytes([loose[at] - 1]) + loose[at + 1 :]
    assert image_and_label(loose) == (b"abc", 300) == parse_example(loose)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"no example",
        _example(label=_ints(1)),
        _example(image=_bytes(b"a")),
        _example(image=_bytes(b"a", b"b"), label=_ints(1)),
        _example(image=_bytes(b"a"), label=_ints(1, 2)),
        _example(image=_bytes(b"a"), label=_ints()),
        _example(image=_ints(1), label=_ints(1)),
        _example(image=_bytes(b"a"), label=_bytes(b"a")),
        # TensorFlow's parser ends the process here.
        b"\x0a\x1c\x0a\x1a\x0a\x0dimage/encoded\x12\x09\x0a\x07\x0a\xff\xff\xff\xff\x0f",
    ],
)
def test_others_are_refused(payload):
    with pytest.raises(ValueError):
        image_and_label(payload)


def test_mutated_examples_are_refused_or_are_what_protobuf_finds():
    rng = np.random.default_rng(0)
    whole = encode_example(rng.bytes(40), b"jpeg", 77)
    refused = 0
    for _ in range(5000):
        payload = bytearray(whole)
        for place in rng.integers(0, len(payload), rng.integers(1, 4)):
            payload[place] = rng.integers(0, 256)
        payload = bytes(payload)
        try:
            expected = parse_example(payload)
        except ValueError:
            refused += 1
            continue
        assert image_and_label(payload) == expected
    assert refused > 1000
