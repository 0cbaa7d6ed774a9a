"""What is mutated: small files of every layout, and how each is read."""

import base64
import gzip
import io
import pickle
import random
import struct

import numpy as np
import tensorflow as tf
from PIL import Image

from plsc_tf.data import images
from plsc_tf.data.checks.check import check
from plsc_tf.data.checks.survey import examine
from plsc_tf.data.conversion.inputs import Base64Input, RecordInput, SourceInput
from plsc_tf.data.conversion.run import ConversionPlan, convert
from plsc_tf.data.faults import read_checked
from plsc_tf.data.load import open_source
from plsc_tf.data.pairs import load_pairs
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.base64_text import base64_files
from plsc_tf.data.readers.class_folders import class_folders
from plsc_tf.data.readers.image_list import image_list
from plsc_tf.data.readers.packed import read_index
from plsc_tf.data.readers.recordio import recordio_source
from plsc_tf.data.readers.tfrecord import encode_example, frame, tfrecords
from plsc_tf.data.request import DataRequest
from tests.data import recordio_writer
from tests.fuzz.mutations import mutate

_SIZE = (12, 10)


class Target:
    """One kind of file: `write` puts a mutated one into a folder, `read` reads it.

    Args:
        name: of the file within the folder.
        contents: what is mutated, several variants.
        open: called with the folder; returns a source, or None when all was read.
        check: (data set, fields of the request) for the data check, or None.
        others: files that lie beside it, not mutated.
        wrap: what is done to the mutated bytes before they are written.
    """

    def __init__(self, name, contents, open, check=None, others=(), wrap=None):
        self.name = name
        self._open = open
        self.check = check
        self._contents = contents
        self._others = dict(others)
        self._wrap = wrap or (lambda data: data)

    def write(self, folder, seed):
        """Writes the mutated file; the same seed writes the same bytes."""
        dice = random.Random(seed)
        content = dice.choice(self._contents)
        for name, data in self._others.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        (folder / self.name).parent.mkdir(exist_ok=True)
        (folder / self.name).write_bytes(self._wrap(mutate(content, dice)))

    def read(self, folder):
        """Reads all there is; raises what the readers raise."""
        source = self._open(folder)
        for index in range(source.num_examples if source else 0):
            entry = {"index": tf.constant([index], tf.int64)}
            read_checked(source, entry, images.to_rgb, source.num_classes)

    def train(self, folder):
        """Reads all there is as a training run does, in batches."""
        source = self._open(folder)
        if source:
            options = PipelineOptions(image_size=_SIZE)
            for _ in Batches(source, 2, options=options):
                pass

    def convert(self, folder):
        """Converts all there is to TFRecord shards."""
        path, kind = f"{folder}/part-0", self.check and self.check[0]
        if self.name == "part-0":
            given = (RecordInput if kind == "flowers" else Base64Input)([path])
        else:
            source = self._open(folder)
            if source is None:
                return
            given = SourceInput(source, {"fuzzing": 1})
        convert(given, ConversionPlan(f"{folder}/converted", num_shards=1))

    def check_data(self, folder):
        """Checks the folder: damaged files are findings, no errors."""
        name, fields = self.check
        check(name, DataRequest(dataset_dir=str(folder), **fields))


def pictures():
    """A JPEG, a PNG and a GIF."""
    pixels = np.random.default_rng(0).integers(0, 256, (*_SIZE, 3), np.uint8)
    encoded = []
    for kind in ("JPEG", "PNG", "GIF"):
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, kind)
        encoded.append(buffer.getvalue())
    return encoded


def _places(payloads):
    """The index of TFRecords: first byte, bytes and label of each."""
    rows, position = [], 0
    for label, payload in enumerate(payloads):
        rows.append((position + 12, len(payload), label))
        position += 12 + len(payload) + 4
    return np.array(rows, np.int64)


def _saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _decode(path):
    load_pairs(path).decoded(_SIZE)


def _read_picture(folder):
    """Decodes as training does and looks at it with Pillow as the data check does."""
    examine((folder / "a/x.jpg").read_bytes(), near=True)
    return class_folders(str(folder))


def _read_mnist(folder):
    return open_source("mnist", DataRequest(str(folder)))


def _idx(shape, values):
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + values


def targets():
    """{name: Target} of everything that is read from files."""
    encoded = pictures()
    payloads = [encode_example(data, b"", k) for k, data in enumerate(encoded)]
    records = b"".join(frame(payload) for payload in payloads)
    text = [base64.b64encode(data) for data in encoded]
    lines = b"".join(b"%s\t%d\n" % (t, k) for k, t in enumerate(text))
    turned = b"".join(b"%d\t%s\n" % (k, t) for k, t in enumerate(text))
    listed = b"".join(b"images/%d.jpg %d\n" % (k, k) for k in range(3))
    beside = {f"images/{k}.jpg": data for k, data in enumerate(encoded)}
    faces = recordio_writer.insightface(encoded, [0, 1, 1])
    rec = b"".join(recordio_writer.record(data) for data in faces)
    plain = [recordio_writer.image(k, k, data) for k, data in enumerate(encoded)]
    plain.append(recordio_writer.image(0, 3, b"1234" + recordio_writer.frame(0, b"x")))
    ends = np.cumsum([len(recordio_writer.record(data)) for data in faces])
    idx = b"".join(b"%d\t%d\n" % p for p in enumerate([0, *ends[:-1].tolist()]))
    arrays = [np.frombuffer(data, np.uint8) for data in encoded]
    bins = [
        pickle.dumps((content, same), protocol)
        for protocol in range(6)
        for content, same in (
            ([encoded[0], encoded[1]] * 2, [True, False]),
            ([arrays[0], arrays[1]], np.array([True])),
        )
    ]
    digits = _idx((3, 6, 5), bytes(range(90)))
    numbers = _idx((3,), bytes([1, 0, 2]))
    idx_names = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
    people = {f"A/A_{k:04d}.jpg": encoded[0] for k in (1, 2)}
    cifar = b"".join(bytes([k]) + bytes(3072) for k in range(3))
    part = {"train_files": ("part-0",)}
    return {
        "tfrecord": Target(
            "part-0",
            [records],
            lambda folder: tfrecords([f"{folder}/part-0"]),
            ("flowers", part),
        ),
        "example": Target(
            "part-0",
            payloads,
            lambda folder: tfrecords([f"{folder}/part-0"]),
            ("flowers", part),
            wrap=frame,
        ),
        "index": Target(
            "part-0.index.npy",
            [_saved(_places(payloads))],
            lambda folder: read_index(f"{folder}/part-0") and None,
            others={"part-0": records},
        ),
        "base64": Target(
            "part-0",
            [lines, turned],
            lambda folder: base64_files([f"{folder}/part-0"]),
            ("base64_text", part),
        ),
        "list": Target(
            "label.txt",
            [listed],
            lambda folder: image_list(str(folder)),
            ("image_list", {}),
            beside,
        ),
        "rec": Target(
            "train.rec",
            [rec],
            lambda folder: recordio_source(f"{folder}/train.rec"),
            ("recordio", {}),
            {"train.idx": idx},
        ),
        "rec_alone": Target(
            "train.rec",
            [rec, b"".join(recordio_writer.record(data) for data in plain)],
            lambda folder: recordio_source(f"{folder}/train.rec"),
            ("recordio", {}),
        ),
        "rec_idx": Target(
            "train.idx",
            [idx],
            lambda folder: recordio_source(f"{folder}/train.rec"),
            ("recordio", {}),
            {"train.rec": rec},
        ),
        "bin": Target(
            "val.bin",
            bins,
            lambda folder: _decode(f"{folder}/val.bin"),
        ),
        "pairs": Target(
            "pairs.txt",
            [b"1\t1\nA\t1\t2\nA\t1\tA\t2\n"],
            lambda folder: _decode(f"{folder}/pairs.txt"),
            others=people,
        ),
        "idx": Target(
            idx_names[0], [digits], _read_mnist, ("mnist", {}), {idx_names[1]: numbers}
        ),
        "idx_labels": Target(
            idx_names[1], [numbers], _read_mnist, ("mnist", {}), {idx_names[0]: digits}
        ),
        "idx_gz": Target(
            f"{idx_names[0]}.gz",
            [gzip.compress(digits)],
            _read_mnist,
            ("mnist", {}),
            {idx_names[1]: numbers},
        ),
        "cifar": Target(
            "test_batch.bin",
            [cifar],
            lambda folder: open_source("cifar10", DataRequest(str(folder), "test")),
            ("cifar10", {"split": "test"}),
        ),
        "picture": Target("a/x.jpg", encoded, _read_picture, ("folder", {})),
    }
