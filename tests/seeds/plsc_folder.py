"""Creates PLSC's data folder, and a `plsc` library whose trainings are small."""

import functools
import importlib
import json
import pathlib
import pickle
import types

import numpy as np
from PIL import Image

import plsc_tf

SMALL = {
    "model_name": "lenet",
    "dropout": 0.0,
    "preprocessing_name": "face",
    "emb_size": 8,
    "image_shape": (3, 16, 16),
    "num_epochs": 1,
    "batch_size": 4,
    "export_at_end": False,
    "run_report": False,
    "tensorboard": False,
}


def make_train_data(folder, labels, size=16):
    """Creates train_data/ with images/, label.txt, and lfw.bin with ten pairs.

    Args:
        folder: path in which to create train_data/.
        labels: labels of the images.
        size: width and height of the images in pixels.
    """
    images = folder / "train_data" / "images"
    images.mkdir(parents=True)
    rng = np.random.default_rng(0)
    lines, encoded = [], []
    for number, label in enumerate(labels):
        path = images / f"{number:08d}.jpg"
        pixels = rng.integers(0, 256, (size, size, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(path)
        lines.append(f"images/{path.name} {label}\n")
        encoded.append(path.read_bytes())
    (images.parent / "label.txt").write_text("".join(lines))
    others = [(i + k * (i % 2)) % len(encoded) for i in range(10) for k in (0, 1)]
    pairs = [encoded[other] for other in others]
    same = [i % 2 == 0 for i in range(10)]
    (images.parent / "lfw.bin").write_bytes(pickle.dumps((pairs, same)))


def results(folder):
    """Returns the content of a run's results.json."""
    return json.loads((pathlib.Path(folder) / "results.json").read_text())


def modules(**options):
    """Returns the modules that PLSC's scripts import, for `sys.modules`.

    The modules are those of plsc_tf, with a small network.

    Args:
        **options: options of `Entry`, in addition to `SMALL`.
    """
    library = types.ModuleType("plsc")
    library.Entry = functools.partial(plsc_tf.Entry, **{**SMALL, **options})
    found = dict.fromkeys(("plsc_serving.run", "plsc_serving", "face_service"), plsc_tf)
    for name in ("models", "models.base_model", "utils", "utils.base64_reader"):
        found[f"plsc.{name}"] = importlib.import_module(f"plsc_tf.{name}")
    return {"plsc": library, **found}


def write_library(folder):
    """Writes `plsc` as a file, for scripts that run in their own process.

    Args:
        folder: folder in which the scripts run.
    """
    (folder / "plsc.py").write_text(
        "import functools, plsc_tf\n"
        f"Entry = functools.partial(plsc_tf.Entry, **{SMALL})\n"
    )
