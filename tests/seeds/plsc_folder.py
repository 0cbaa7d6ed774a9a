"""A folder as PLSC has it, and a `plsc` whose trainings are small."""

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
}


def make_train_data(folder, labels, size=16):
    """train_data/ with images/, label.txt and lfw.bin of ten pairs.

    Args:
        folder: path that gets it.
        labels: of the pictures.
        size: of a side, in pixels.
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
    """results.json of a run."""
    return json.loads((pathlib.Path(folder) / "results.json").read_text())


def modules(**options):
    """What PLSC's scripts import, for `sys.modules`: ours, with a small network.

    Args:
        **options: of `Entry`, besides those of `SMALL`.
    """
    library = types.ModuleType("plsc")
    library.Entry = functools.partial(plsc_tf.Entry, **{**SMALL, **options})
    names = ("models", "models.base_model", "utils", "utils.base64_reader")
    return {
        "plsc": library,
        "plsc_serving.run": plsc_tf,
        "plsc_serving": plsc_tf,
        "face_service": plsc_tf,
        **{
            f"plsc.{name}": importlib.import_module(f"plsc_tf.{name}") for name in names
        },
    }


def write_library(folder):
    """Writes the same `plsc` as a file, for scripts that run as processes.

    Args:
        folder: where the scripts run.
    """
    (folder / "plsc.py").write_text(
        "import functools, plsc_tf\n"
        f"Entry = functools.partial(plsc_tf.Entry, **{SMALL})\n"
    )
