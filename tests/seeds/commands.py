"""Runs command lines from the documents, and draws the images that they need."""

import os
import pathlib
import subprocess
import sys

import tensorflow as tf

from plsc_tf.data import figures, images
from tests.conversion import drawn
from tests.programs import ROOT


def shell(line, folder):
    """Runs a command line in a folder; returns its output, or fails and shows it.

    Its `python` can import plsc_tf.
    """
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def jpeg(label, number, size=32):
    """Returns the bytes of a JPEG with a synthetic figure."""
    return images.encode(figures.draw(0, label, number, (size, size)), "JPEG")


def class_folders(folder, classes, images, first=0):
    """Writes `images` synthetic JPEGs to each of the folders class_0, class_1, ..."""
    for label in range(classes):
        place = pathlib.Path(folder) / f"class_{label}"
        place.mkdir(parents=True)
        for number in range(first, first + images):
            (place / f"{number}.jpg").write_bytes(jpeg(label, number))


def tfrecord(path, classes, images):
    """Writes a TFRecord file of synthetic images with FastNN's keys."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(images):
            label = number % classes
            more = {"image/format": b"jpeg"}
            writer.write(drawn.example(jpeg(label, number), label, **more))
