"""What is mutated: small files of every layout, and how each is read."""

import base64
import dataclasses
import functools
import gzip
import io
import pickle
import random
import struct
import tarfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from plsc_tf.data import images
from plsc_tf.data.checks.check import check
from plsc_tf.data.checks.listings import Item
from plsc_tf.data.checks.survey import examine
from plsc_tf.data.conversion.inputs import FilesInput, SourceInput
from plsc_tf.data.conversion.run import ConversionPlan, convert
from plsc_tf.data.faults import read_checked
from plsc_tf.data.load import open_source
from plsc_tf.data.pairs import load_pairs
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.formats import BASE64, TFRECORD
from plsc_tf.data.readers.layouts import DataRequest
from plsc_tf.data.readers.packed import read_index
from plsc_tf.data.readers.tfrecord import encode_example, frame
from plsc_tf.data.source import map_rows
from tests.data import recordio_writer
from tests.data.test_index_table import saved
from tests.fuzz.mutations import mutate

_SIZE = (12, 10)


@dataclasses.dataclass
class Target:
    """One kind of file: `write` puts a mutated one into a folder, `read` reads it.

    Args:
        name: of the file within the folder.
        contents: what is mutated, several variants.
        data_set: the data set that the file belongs to, or "".
        fields: of the request for the data set.
        others: files that lie beside it, not mutated.
        wrap: what is done to the mutated bytes before they are written.
        look: called with the file's path before the data set is read.
    """

    name: str
    contents: list
    data_set: str = ""
    fields: dict = dataclasses.field(default_factory=dict)
    others: dict = dataclasses.field(default_factory=dict)
    wrap: Callable = bytes
    look: Callable = str

    def write(self, folder, seed):
        """Writes the mutated file; the same seed writes the same bytes."""
        dice = random.Random(seed)
        content = dice.choice(self.contents)
        for name, data in self.others.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        (folder / self.name).parent.mkdir(exist_ok=True)
        (folder / self.name).write_bytes(self.wrap(mutate(content, dice)))

    def read(self, folder):
        """Reads all there is; raises what the readers raise."""
        self.look(f"{folder}/{self.name}")
        source = self._open(folder)
        decode = functools.partial(map_rows, images.to_rgb)
        for index in range(source.num_examples if source else 0):
            entry = {"index": tf.constant([index], tf.int64)}
            read_checked(source, entry, decode, source.num_classes)

    def train(self, folder):
        """Reads all there is as a training run does, in batches."""
        if source := self._open(folder):
            for _ in Batches(source, 2, options=PipelineOptions(image_size=_SIZE)):
                pass

    def convert(self, folder):
        """Converts all there is to TFRecord shards."""
        if self.name == "part-0":
            form = TFRECORD if self.data_set == "flowers" else BASE64
            given = FilesInput(form, [f"{folder}/part-0"])
        elif source := self._open(folder):
            given = SourceInput(source, {"fuzzing": 1})
        else:
            return
        convert(given, ConversionPlan(f"{folder}/converted", num_shards=1))

    def check_data(self, folder):
        """Checks the folder: damaged files are findings, no errors."""
        check(self.data_set, DataRequest(dataset_dir=str(folder), **self.fields))

    def _open(self, folder):
        request = DataRequest(dataset_dir=str(folder), **self.fields)
        return open_source(self.data_set, request) if self.data_set else None


def pictures():
    """A JPEG, a PNG and a GIF."""
    pixels = np.random.default_rng(0).integers(0, 256, (*_SIZE, 3), np.uint8)
    return [images.encode(pixels, kind) for kind in ("JPEG", "PNG", "GIF")]


def _places(payloads):
    """The index of TFRecords: first byte, bytes and label of each."""
    rows, position = [], 0
    for label, payload in enumerate(payloads):
        rows.append((position + 12, len(payload), label))
        position += 12 + len(payload) + 4
    return np.array(rows, np.int64)


def _read_index(path):
    read_index(path.removesuffix(".index.npy"))


def _decode(path):
    load_pairs(path).decoded(_SIZE)


def _examine(path):
    """Looks at a picture with Pillow as the data check does."""
    with open(path, "rb") as file:
        examine(Item(content=file.read()), near=True)


def _idx(shape, values):
    return struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape) + values


def _shard(encoded):
    """A shard of WebDataset."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as shard:
        for number, data in enumerate(encoded):
            for ending, text in (("jpg", data), ("cls", b"%d" % number)):
                member = tarfile.TarInfo(f"José/{number}.{ending}")
                member.size = len(text)
                shard.addfile(member, io.BytesIO(text))
    return content.getvalue()


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
    people = {f"A/A_{k:04d}.jpg": encoded[0] for k in (1, 2)}
    cifar = b"".join(bytes([k]) + bytes(3072) for k in range(3))
    part = {"train_files": ("part-0",)}
    alone = [rec, b"".join(recordio_writer.record(data) for data in plain)]
    pairs = [b"1\t1\nA\t1\t2\nA\t1\tA\t2\n"]
    index, packed = [saved(_places(payloads))], {"part-0": records}
    image_file, label_file = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
    labels = {label_file: numbers}
    return {
        "tfrecord": Target("part-0", [records], "flowers", part),
        "example": Target("part-0", payloads, "flowers", part, wrap=frame),
        "index": Target("part-0.index.npy", index, others=packed, look=_read_index),
        "base64": Target("part-0", [lines, turned], "base64_text", part),
        "list": Target("label.txt", [listed], "image_list", others=beside),
        "rec": Target("train.rec", [rec], "recordio", others={"train.idx": idx}),
        "rec_alone": Target("train.rec", alone, "recordio"),
        "rec_idx": Target("train.idx", [idx], "recordio", others={"train.rec": rec}),
        "tar": Target("train.tar", [_shard(encoded)], "webdataset"),
        "bin": Target("val.bin", bins, look=_decode),
        "pairs": Target("pairs.txt", pairs, others=people, look=_decode),
        "idx": Target(image_file, [digits], "mnist", others=labels),
        "idx_labels": Target(
            label_file, [numbers], "mnist", others={image_file: digits}
        ),
        "idx_gz": Target(
            f"{image_file}.gz", [gzip.compress(digits)], "mnist", others=labels
        ),
        "cifar": Target("test_batch.bin", [cifar], "cifar10", {"split": "test"}),
        "picture": Target("a/x.jpg", encoded, "folder", look=_examine),
    }
