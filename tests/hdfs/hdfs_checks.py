"""Calls that the tests ask of the driver; their results are JSON."""

import os
import signal

import tensorflow as tf
from hdfs_trainings import no_waits

from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers.image_files import image_list
from plsc_tf.storage import files, transfer
from plsc_tf.storage.writer_lock import WriterLock
from tests.storage import test_storage_files

# Quick: the tests know whether a server is up.
QUICK = files.Retry(tries=2, first_wait_s=0.1, limit_s=30)
LOCKS, BATCHES = {}, {}
_signals = []


def handle_sigterm():
    signal.signal(signal.SIGTERM, lambda number, frame: _signals.append(number))


def signals_seen():
    return _signals


def prepare(path):
    files.prepare(path)
    return [os.environ["LIBHDFS_OPTS"], os.environ["CLASSPATH"]]


def on_new_folder(test, folder):
    """Calls a test of local files on a folder that it makes."""
    files.make_dirs(folder)
    getattr(test_storage_files, f"test_{test}")(folder)


def write(path, content):
    return files.write(path, content.encode())


def exists(path, tries, first_wait_s, limit_s):
    return files.exists(path, files.Retry(tries, first_wait_s, limit_s))


def list_dir(path):
    return files.list_dir(path, QUICK)


def copy(function, source, target):
    """Copies a folder by `transfer.upload` or `download`."""
    return getattr(transfer, function)(source, target)


def write_images(folder, count, missing):
    """Writes images and the list of them, with one that does not exist."""
    image = tf.io.encode_jpeg(tf.zeros([8, 8, 3], tf.uint8)).numpy()
    for number in set(range(count)) - {missing}:
        files.write(f"{folder}/{number}.jpg", image)
    lines = [f"{number}.jpg {number}\n" for number in range(count)]
    files.write(f"{folder}/label.txt", "".join(lines).encode())


def read_images(folder):
    """Returns the labels of the images in a list, and the number of those skipped."""
    options = PipelineOptions((8, 8), shuffle=False, skip_bad_records=True)
    if folder not in BATCHES:
        BATCHES[folder] = Batches(image_list(folder), 4, options=options)
    with no_waits():
        labels = [int(label) for _, labels in BATCHES[folder] for label in labels]
    return labels, len(BATCHES[folder].source.skipped)


def take_lock(name, folder, options):
    """Takes the lock of a folder, which has a name from then on."""
    LOCKS[name] = WriterLock("Go elsewhere.", **{"renew_s": 0.5, **options})
    LOCKS[name].acquire(folder)


def lock(name, method):
    """Calls `check` or `release` of a lock."""
    getattr(LOCKS[name], method)()
