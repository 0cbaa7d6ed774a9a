"""A small training on drawn figures in class folders."""

import numpy as np
import tensorflow as tf
from PIL import Image

from plsc_tf.checkpoints import manifest
from plsc_tf.checkpoints.rows import StoredRows
from plsc_tf.classes import GROUPS
from plsc_tf.data import figures
from plsc_tf.data.source import IndexedSource
from plsc_tf.jobs.classes import edit, noise
from plsc_tf.options.cli import parse
from tests.jobs import tiny_run

CLASSES, CENTERS, PICTURES, SIZE = 6, 3, 5, (16, 16)


def settings_of(root, **changes):
    """Of the training in `root`, with several centers per class."""
    values = {
        "dataset_name": "folder",
        "dataset_dir": str(root / "data"),
        "num_classes": CLASSES,
        "num_epochs": 1,
        "optimizer": "adagrad",
        "sub_centers": CENTERS,
        "hooks": ("CheckpointSaverHook", "keras.callbacks:History"),
        "datasets_cache_dir": str(root / "cache"),
    }
    return tiny_run.settings(root / "run", **values | changes)


def run_command(*flags):
    """The rows of the command's table."""
    settings = parse([*flags, "--num_replicas=1"], GROUPS)
    return dict((edit.edit if settings.classes.edit_dir else noise.report)(settings))


def rows_of(path, name="weight"):
    described = manifest.read(str(path))["arrays"][name]
    return StoredRows(str(path), described).read(0, described["shape"][0])


def draw_classes(folder, numbers, pictures=PICTURES):
    for label in numbers:
        place = folder / f"person{label:02d}"
        place.mkdir(parents=True)
        for k in range(pictures + label % 2):
            Image.fromarray(figures.draw(0, label, k, SIZE)).save(place / f"{k}.png")


def examples(request):
    """A data set of a user's own, whose pictures are no files."""
    images = tf.zeros([CLASSES, *SIZE, 3], tf.uint8)
    return IndexedSource("zeros", np.arange(CLASSES), lambda k: tf.gather(images, k))
