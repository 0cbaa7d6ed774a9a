"""Small pictures and the layouts that hold them, written into tmp_path."""

import contextlib
import tracemalloc

import numpy as np
import pytest

from plsc_tf.data import images
from plsc_tf.data.checks.check import check
from plsc_tf.data.load import open_source
from plsc_tf.data.preprocessing import build
from plsc_tf.data.readers.layouts import DataRequest
from plsc_tf.jobs.evaluate.embeddings import Pictures


def encoded(label, number, size=(12, 10), kind="PNG"):
    """A PNG that shows its label in red and its number in green."""
    pixels = np.zeros((*size, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = 10 * label, number
    pixels[0, 0, 2] = 255
    return images.encode(pixels, kind)


def write_folders(root, names, count=1):
    """Class folders, each with as many images."""
    for label, name in enumerate(names):
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            (root / name / f"{number}.png").write_bytes(encoded(label, number))


def opened(name, folder, **fields):
    """The source of a data set in a folder."""
    return open_source(name, DataRequest(dataset_dir=str(folder), **fields))


def findings(name, folder, **options):
    """What the check finds in a data set in a folder."""
    request = DataRequest(dataset_dir=str(folder))
    return check(name, request, **options).report["findings"]


def assert_second_is_bad(paths, words):
    """Commands that embed name the second of three images, or skip it."""
    pictures = Pictures(lambda images: images[:, 0, 0], build("none", (12, 10)), 8)
    with pytest.raises(ValueError, match=words):
        list(pictures.rows(paths))
    skipped = {}
    ((rows, *_),) = pictures.rows(paths, skipped=skipped)
    assert rows.tolist() == [0, 2] and list(skipped) == [paths[1]]


@pytest.fixture(scope="session")
def picture():
    """The function that encodes a test picture."""
    return encoded


@pytest.fixture
def list_folder(tmp_path):
    """A data root with label.txt: 20 images, labels 0...4 in turn."""
    (tmp_path / "images").mkdir()
    lines = []
    for number in range(20):
        name = f"images/{number:02d}.png"
        (tmp_path / name).write_bytes(encoded(number % 5, number))
        lines.append(f"{name} {number % 5}\n")
    (tmp_path / "label.txt").write_text("".join(lines))
    return tmp_path


@contextlib.contextmanager
def bounded(most=200e6):
    """Fails if the block uses more than `most` bytes of memory."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < most
