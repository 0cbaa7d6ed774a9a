"""Small images in every layout, written and read without the library's own code."""

import base64
import hashlib
import io
import pathlib
import re

import numpy as np
from PIL import Image

from tests.folders import contents


def images(count, classes=7, seed=0):
    """(encoded image, label) pairs, JPEG, PNG and GIF in turn, all different."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        pixels = rng.integers(0, 256, (*rng.integers(2, 12, 2), 3)).astype(np.uint8)
        stream = io.BytesIO()
        kind = ("JPEG", "PNG", "GIF")[number % 3]
        Image.fromarray(pixels).save(stream, kind, comment=b"%d" % number)
        found.append((stream.getvalue(), int(rng.integers(classes))))
    return found


def write_base64(folder, examples, files=3):
    """Part files of examples in order, and file_list.txt; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"part-{k}" for k in range(files)]
    for name, rows in zip(names, _split(examples, files), strict=True):
        pairs = (examples[row] for row in rows)
        lines = [b"%b\t%d\n" % (base64.b64encode(image), n) for image, n in pairs]
        (folder / name).write_bytes(b"".join(lines))
    (folder / "file_list.txt").write_text("\n".join(names) + "\n")
    return [str(folder / name) for name in names]


def example(image, label, **more):
    """A serialized tf.train.Example by protobuf."""
    import tensorflow as tf

    def feature(value):
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    values = {"image/encoded": image, "image/class/label": label, **more}
    features = {key: feature(value) for key, value in values.items()}
    made = tf.train.Example(features=tf.train.Features(feature=features))
    return made.SerializeToString()


def write_file(path, examples, **more):
    """A TFRecord file by TensorFlow and protobuf."""
    import tensorflow as tf

    more = {"image/format": b"any"} | more
    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in examples:
            writer.write(example(image, label, **more))


def write_records(folder, examples, files=3, **more):
    """TFRecord files of examples in order; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(folder / f"{k}.tfrecord") for k in range(files)]
    for path, rows in zip(paths, _split(examples, files), strict=True):
        write_file(path, [examples[row] for row in rows], **more)
    return paths


def read_base64(folder):
    """(image, label) of all lines of the files that file_list.txt names."""
    names = (folder / "file_list.txt").read_text().splitlines()
    return [line for name in names for line in read_lines(folder / name)]


def read_lines(path):
    """(image, label) of all lines of a file."""
    lines = [line.split(b"\t") for line in path.read_bytes().splitlines()]
    return [(base64.b64decode(image, validate=True), int(n)) for image, n in lines]


def read_records(folder):
    """(image, label) of all records, by TensorFlow, which checks their checksums."""
    import tensorflow as tf

    paths = sorted(str(path) for path in pathlib.Path(folder).glob("*.tfrecord"))
    found = []
    for record in tf.data.TFRecordDataset(paths).as_numpy_iterator():
        feature = tf.train.Example.FromString(record).features.feature
        image, label = feature["image/encoded"], feature["image/class/label"]
        found.append((image.bytes_list.value[0], label.int64_list.value[0]))
    return found


def write(layout, *arguments):
    return {"base64": write_base64, "tfrecord": write_records}[layout](*arguments)


def read(folder, layout):
    return {"base64": read_base64, "tfrecord": read_records}[layout](folder)


def overwrite(path, position, data):
    """Changes bytes in the middle of a file."""
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def digests(folder):
    """{name: SHA-256} of all files below a folder with content, but for its mark."""
    files = [(name, data) for name, data in contents(folder).items() if data]
    files = [(name, re.sub(rb'"mark": [^]]*', b"", data)) for name, data in files]
    return {name: hashlib.sha256(data).hexdigest() for name, data in files}


def _split(examples, files):
    return np.array_split(np.arange(len(examples)), files)
