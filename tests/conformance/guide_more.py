"""What only the longer commands of the guides need, besides `guide_folder`."""

import json
import pathlib
import re

import numpy as np

from tests.conformance.guide_folder import jpeg
from tests.importers.paddle_writer import stream
from tests.importers.theirs import Plsc

DOCS = pathlib.Path(__file__).parents[2] / "docs"
# Of the checkpoint that output/119 is, as PLSC 0.1 writes it: a small ResNet50.
PLSC_CLASSES, PLSC_SIZE, PLSC_SHAPE = 50, 6, (16, 16)
_STAGES, _WIDTHS = (3, 4, 14, 3), (64, 128, 256, 512)


def fill(folder):
    """Makes what the pages take for granted, and files that readers write."""
    for label, name in enumerate(("gina", "hugo")):
        _people(folder / "new_people" / name, 500 + label, 3)
    for label in range(5):
        _people(folder / "flower_photos" / f"kind{label}", 700 + label, 6)
    (folder / "my_flowers.py").write_text(
        _block("from_fastnn.md", "python", "# my_flowers.py")
    )
    (folder / "my_hooks.py").write_text(_block("logs.md", "python", "# my_hooks.py"))
    (folder / "my.cfg").write_text(_block("getting_started.md", "text", "dataset_name"))
    (folder / "fastnn.cfg").write_text(
        "enable_paisoar=True\nmodel_name=lenet\nnum_classes=10\nbatch_size=8\n"
        "num_sample_per_epoch=80\nstop_at_step=3\n"
    )
    (folder / "my_script.py").write_text("import sys\nprint(sys.argv[1:])\n")
    (folder / "noise.merge.txt").write_text("5 9\n20 31 44\n")
    plsc_checkpoint(folder / "output" / "119")


def _block(guide, language, start):
    """The block of a guide that begins so."""
    text = (DOCS / guide).read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    (found,) = [block for block in blocks if block.startswith(start)]
    return found


def _people(folder, label, count):
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number}.jpg").write_bytes(jpeg(label, number))


def plsc_checkpoint(folder):
    """A checkpoint of PLSC 0.1, of two replicas."""
    folder.mkdir(parents=True)
    network, random = Plsc(), np.random.default_rng(0)
    pixels = random.integers(0, 256, (2, *PLSC_SHAPE, 3)).astype(np.uint8)
    network.embed(pixels, _STAGES, _WIDTHS, PLSC_SIZE)
    arrays = dict(network.weights)
    for rank in range(2):
        rows = random.normal(size=(PLSC_SIZE, PLSC_CLASSES // 2))
        arrays[f"dist@arcface@rank@{rank:05d}.w_0"] = rows.astype(np.float32)
    for name, array in arrays.items():
        (folder / name).write_bytes(stream(array))
    meta = {"pretrain_nranks": 2, "emb_dim": PLSC_SIZE, "num_classes": PLSC_CLASSES}
    (folder / "meta.json").write_text(json.dumps(meta))
