"""Omniglot's background alphabets at 105x105; five are held out for verification.

Each character is a class with images by twenty people, in <alphabet>/character<NN>/.
Lake, Salakhutdinov, Tenenbaum: Human-level concept learning through probabilistic
program induction, Science 350, 2015.
"""

import numpy as np

from plsc_tf.data.image_limit import read_image
from plsc_tf.data.pairs import Pairs
from plsc_tf.data.readers import image_files, layouts
from plsc_tf.requirements import require

HELD_OUT = ("Bengali", "Greek", "Korean", "Syriac_(Estrangelo)", "Tagalog")
NUM_PAIRS = 6_000

INFO = layouts.DatasetInfo(num_classes=964 - 150, augmentation="none", tfrecords=True)
# Fixed, because a benchmark must not depend on a run's seed.
_PAIRS_SEED = 0


def layout(request: layouts.DataRequest) -> layouts.ClassFoldersLayout:
    """Returns the layout of the training or, for other splits, held-out alphabets."""
    training = request.split == "train"
    return layouts.ClassFoldersLayout(
        request, request.dataset_dir, keep=lambda name: _is_held_out(name) != training
    )


def pairs(request: layouts.DataRequest, target: str = "held_out") -> Pairs | None:
    """Returns 6,000 seeded pairs of the held-out alphabets.

    They alternate between two images of the same character and images of two characters
    of the same alphabet; all pairs are distinct.
    """
    if target not in ("held_out", "omniglot", "val"):
        return None
    held_out = image_files.class_folders(request.dataset_dir, keep=_is_held_out)
    alphabets = np.array([name.split("/")[0] for name in held_out.class_names])
    chosen = _choose(held_out.labels, alphabets)
    used, rows = np.unique(chosen, return_inverse=True)
    left, right = rows.reshape(chosen.shape).T
    names = tuple(held_out.describe(int(index)) for index in used)
    encoded = [read_image(name) for name in names]
    same = held_out.labels[chosen[:, 0]] == held_out.labels[chosen[:, 1]]
    return Pairs(target, encoded, left, right, same, files=names, mirror=False)


def _is_held_out(name: str) -> bool:
    """Returns whether a class folder is that of a held-out alphabet."""
    return name.split("/")[0] in HELD_OUT


def _choose(labels: np.ndarray, alphabet_of_class: np.ndarray) -> np.ndarray:
    """Returns distinct pairs of indices `[NUM_PAIRS, 2]`, alternately same and not."""
    random = np.random.default_rng(_PAIRS_SEED)
    alphabets = alphabet_of_class[labels]
    chosen = []
    for want_same in (True, False):
        pairs: dict[tuple[int, int], None] = {}
        for _ in range(10 * NUM_PAIRS):
            first = int(random.integers(len(labels)))
            kin = labels == labels[first]
            others = kin if want_same else (alphabets == alphabets[first]) & ~kin
            second = int(random.choice(np.flatnonzero(others)))
            if first != second:
                pairs[min(first, second), max(first, second)] = None
            if len(pairs) == NUM_PAIRS // 2:
                break
        require(len(pairs) == NUM_PAIRS // 2, "Too few images are in the alphabets")
        chosen.append(list(pairs))
    return np.stack(chosen, axis=1).reshape(-1, 2)
