"""Reads TFRecords from an HDFS; the last line printed is one JSON object.

`benchmarks.hdfs` starts it; $PLSC_TF_HDFS is the address of the HDFS.
"""

import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np
import tensorflow as tf

from benchmarks import options
from benchmarks.hdfs import HdfsCase
from plsc_tf.data.readers.tfrecord import encode_example, read_records, tfrecords
from plsc_tf.data.sampling import Order
from plsc_tf.storage import files

MB = 1e6
BLOCK = 64


def main(case):
    """Writes the records if they don't exist yet, reads them and prints."""
    folder = f"{os.environ['PLSC_TF_HDFS']}/records"
    names = make_files(case, folder)
    begun = time.perf_counter()
    source = tfrecords(names, num_classes=1)
    found = {"in_tensorflow": files.opens_in_tensorflow(folder)}
    found["locate_s"] = time.perf_counter() - begun

    def as_in_training(shuffle):
        order = Order(shuffle=shuffle, seed=case.seed, batch_size=BLOCK)
        read = tf.autograph.experimental.do_not_convert(source.read)
        blocks = source.blocks(BLOCK, order).map(read, num_parallel_calls=4)
        return sum(len(image) for block in blocks for image in block["image"].numpy())

    runs = {
        "whole_files": lambda: sum(len(p) for n in names for p in files.open_read(n)),
        "from_front_to_back": lambda: sum(
            len(record) for name in names for *_, record in read_records(name)
        ),
        "blocks_in_order": lambda: as_in_training(False),
        "blocks_shuffled": lambda: as_in_training(True),
    }
    for name, run in runs.items():
        begun, cpu = time.perf_counter(), time.process_time()
        size = run()
        seconds = time.perf_counter() - begun
        found[f"{name}_mb_s"] = size / MB / seconds
        found[f"{name}_cpu_s"] = time.process_time() - cpu
    sys.stdout.write(json.dumps(found) + "\n")


def make_files(case, folder):
    """Writes the records to a folder, unless it exists; returns the files' paths."""
    names = [f"{folder}/{number}.tfrecord" for number in range(case.files)]
    if files.exists(folder):
        return names
    random = np.random.default_rng(case.seed)
    count = max(1, round(case.megabytes * MB / case.files / case.record_bytes))
    for name in names:
        with tempfile.NamedTemporaryFile() as local:
            with tf.io.TFRecordWriter(local.name) as writer:
                for _ in range(count):
                    image = random.bytes(case.record_bytes)
                    writer.write(encode_example(image, b"jpeg", 0))
            files.write(name, pathlib.Path(local.name).read_bytes())
    return names


if __name__ == "__main__":
    options.run(main, HdfsCase, __doc__)
