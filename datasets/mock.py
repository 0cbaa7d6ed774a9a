"""Synthetic faces for experiments: any number of classes, no files needed.

Each class is an identity with its own shape and colors; its images differ in pose,
expression, light, background and noise. Verification pairs show identities that are not
in any training set, whatever its size.
"""

import functools

import numpy as np
import tensorflow as tf

from plsc_tf.data.figures import draw, identity
from plsc_tf.data.pairs import Pairs
from plsc_tf.data.request import DataRequest
from plsc_tf.data.source import IndexedSource, Source

DEFAULT_CLASSES = 100
DEFAULT_IMAGES_PER_CLASS = 20

# Labels and image numbers of other splits start at numbers that training never reaches.
_FIRST_UNSEEN_CLASS = 2**40
_FIRST_VAL_IMAGE = 2**20
_FOLDS, _CLASSES_PER_FOLD, _IMAGES_PER_CLASS, _PAIRS_PER_FOLD = 10, 20, 4, 200


def examples(request: DataRequest) -> Source:
    """Draws num_examples images; image i shows class i modulo num_classes."""
    if request.train_files:
        raise ValueError(
            "The data set mock draws its images and does not read files. Received: "
            f"train_files={','.join(request.train_files)}. Set --dataset_name to "
            "another data set, such as ms1m, image_list or folder."
        )
    classes = request.num_classes or DEFAULT_CLASSES
    count = request.num_examples or classes * DEFAULT_IMAGES_PER_CLASS
    first = 0 if request.split == "train" else _FIRST_VAL_IMAGE
    size, seed = request.image_size, request.seed
    # Cache identities, because creating one takes as long as drawing a few strokes.
    known = functools.lru_cache(maxsize=4096)(functools.partial(identity, seed))

    def draw_all(indices):
        numbers = [divmod(int(index), classes) for index in indices]
        return np.stack([draw(seed, k, first + n, size, known(k)) for n, k in numbers])

    def fetch(indices):
        images = tf.numpy_function(draw_all, [indices], tf.uint8, stateful=False)
        return tf.ensure_shape(images, [None, *size, 3])

    source = IndexedSource(
        "mock",
        np.arange(count, dtype=np.int64) % classes,
        fetch,
        num_classes=classes,
        describe=lambda index: f"drawn image {index}",
        stamp=lambda: f"{seed} {size} {first}",
    )
    source.used_fields = frozenset({"num_examples"})
    return source


def pairs(request: DataRequest, target: str = "mock") -> Pairs | None:
    """Returns 2,000 pairs of 200 unseen identities; no identity is in two folds."""
    if target not in ("mock", "unseen", "val"):
        return None
    images, left, right, same = [], [], [], []
    random = np.random.default_rng([request.seed, 7])
    for fold in range(_FOLDS):
        start = len(images)
        for number in range(_CLASSES_PER_FOLD):
            label = _FIRST_UNSEEN_CLASS + fold * _CLASSES_PER_FOLD + number
            images.extend(
                draw(request.seed, label, k, request.image_size)
                for k in range(_IMAGES_PER_CLASS)
            )
        chosen = _fold_pairs(random)
        left.extend(start + chosen[:, 0])
        right.extend(start + chosen[:, 1])
        same.extend(
            chosen[:, 0] // _IMAGES_PER_CLASS == chosen[:, 1] // _IMAGES_PER_CLASS
        )
    return Pairs(target, np.stack(images), left, right, same)


def _fold_pairs(random: np.random.Generator) -> np.ndarray:
    """Returns a fold's distinct pairs of images; half show the same identity."""
    count = _CLASSES_PER_FOLD * _IMAGES_PER_CLASS
    first, second = np.triu_indices(count, 1)
    alike = first // _IMAGES_PER_CLASS == second // _IMAGES_PER_CLASS
    half = _PAIRS_PER_FOLD // 2
    chosen = np.concatenate(
        [
            random.choice(np.flatnonzero(kind), half, replace=False)
            for kind in (alike, ~alike)
        ]
    )
    return np.stack([first[chosen], second[chosen]], axis=1)
