"""Synthetic faces for experiments: any number of classes, no files needed.

Each class is an identity with its own shape and colors; its images differ in pose,
expression, light, background and noise. Verification pairs show identities that are not
in any training set, whatever its size.
"""

import itertools
import threading

import numpy as np
import tensorflow as tf

from plsc_tf.data.figures import draw
from plsc_tf.data.pairs import Pairs
from plsc_tf.data.readers.layouts import DataRequest
from plsc_tf.data.source import IndexedSource, Source, in_python
from plsc_tf.requirements import require

DEFAULT_CLASSES, DEFAULT_IMAGES_PER_CLASS = 100, 20

# Changes with the drawing: a cache or a checkpoint belongs to one.
_DRAWING = "2"
# Labels and image numbers of other splits start at numbers that training never reaches.
_FIRST_UNSEEN_CLASS = 2**40
_FIRST_VAL_IMAGE = 2**20
# Of the verification pairs: folds, classes per fold, images per class, pairs per fold.
_FOLDS, _CLASSES, _IMAGES, _PAIRS_PER_FOLD = 10, 20, 4, 200


def examples(request: DataRequest) -> Source:
    """Draws num_examples images; image i shows class i modulo num_classes."""
    rule = "The data set mock draws its images and does not read files"
    advice = "Set --dataset_name to another one, such as ms1m, image_list or folder"
    given = ",".join(request.train_files)
    require(not given, rule, advice, train_files=given)
    classes = request.num_classes or DEFAULT_CLASSES
    count = request.num_examples or classes * DEFAULT_IMAGES_PER_CLASS
    first = 0 if request.split == "train" else _FIRST_VAL_IMAGE
    size, seed = request.image_size, request.seed

    one_at_a_time = threading.Lock()

    def draw_all(indices):
        numbers = [divmod(int(index), classes) for index in indices]
        # Two threads that both draw take twice as long: numpy's calls are short, and
        # each of them passes the interpreter's lock on.
        with one_at_a_time:
            return np.stack([draw(seed, k, first + n, size) for n, k in numbers])

    def fetch(indices):
        return in_python(draw_all, [indices], tf.uint8, [None, *size, 3])

    source = IndexedSource(
        "mock",
        np.arange(count, dtype=np.int64) % classes,
        fetch,
        num_classes=classes,
        describe=lambda index: f"drawn image {index}",
        stamp=lambda: f"{_DRAWING} {seed} {size} {first}",
        contents=lambda: _DRAWING,
    )
    source.used_fields = frozenset({"num_examples"})
    return source


def pairs(request: DataRequest, target: str = "mock") -> Pairs | None:
    """Returns 2,000 pairs of 200 unseen identities; no identity is in two folds."""
    if target not in ("mock", "unseen", "val"):
        return None
    random = np.random.default_rng([request.seed, 7])
    classes = itertools.product(range(_FOLDS * _CLASSES), range(_IMAGES))
    seed, size = request.seed, request.image_size
    images = [draw(seed, _FIRST_UNSEEN_CLASS + k, n, size) for k, n in classes]
    folds = range(0, len(images), _CLASSES * _IMAGES)
    left, right = np.concatenate([first + _fold_pairs(random) for first in folds]).T
    same = left // _IMAGES == right // _IMAGES
    return Pairs(target, np.stack(images), left, right, same)


def _fold_pairs(random: np.random.Generator) -> np.ndarray:
    """Returns a fold's distinct pairs of images; half show the same identity."""
    first, second = np.triu_indices(_CLASSES * _IMAGES, 1)
    alike = first // _IMAGES == second // _IMAGES
    kinds = (np.flatnonzero(kind) for kind in (alike, ~alike))
    half = _PAIRS_PER_FOLD // 2
    chosen = np.concatenate([random.choice(k, half, replace=False) for k in kinds])
    return np.stack([first[chosen], second[chosen]], axis=1)
