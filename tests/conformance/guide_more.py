"""What only the longer commands of the guides need, beside `guide_folder`."""

import json
import pathlib
import re
import struct

import numpy as np

from plsc_tf.data import figures
from tests.conformance.guide_folder import PEOPLE, POINTS, jpeg
from tests.data import recordio_writer
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
    _recordio(folder / "faces_emore")
    _templates(folder / "IJBC")
    _mnist(folder / "mnist")
    _cifar(folder / "cifar10")
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


def _recordio(folder):
    folder.mkdir()
    pictures = [jpeg(label, n) for label in range(4) for n in range(3)]
    labels = [label for label in range(4) for _ in range(3)]
    contents = recordio_writer.insightface(pictures, labels)
    recordio_writer.write(folder / "train.rec", contents)


def _templates(folder):
    """A folder in the form of IJB-C: two templates of two pictures of each person."""
    (folder / "meta").mkdir(parents=True)
    (folder / "loose_crop").mkdir()
    media, points = [], []
    for person in range(len(PEOPLE)):
        for number in range(4):
            name = f"{4 * person + number}.jpg"
            (folder / "loose_crop" / name).write_bytes(jpeg(person, number))
            media.append(f"{name} {2 * person + number // 2} {4 * person + number}")
            points.append(f"{name} {POINTS} 0.9")
    templates = range(2 * len(PEOPLE))
    pairs = [f"{a} {b} {int(a // 2 == b // 2)}" for a in templates for b in range(a)]
    gallery = [f"{t},{t // 2}" for t in templates[::2]]
    probes = [f"{t},{t // 2}" for t in templates[1::2]]
    header = "TEMPLATE_ID,SUBJECT_ID"
    for name, lines in (
        ("face_tid_mid.txt", media),
        ("template_pair_label.txt", pairs),
        ("name_5pts_score.txt", points),
        ("1N_gallery_G1.csv", [header, *gallery]),
        ("1N_probe_mixed.csv", [header, *probes]),
    ):
        (folder / "meta" / f"ijbc_{name}").write_text("\n".join(lines))


def _drawn(count, size):
    """Drawn pictures [count, size, size, 3] of ten kinds, and their labels."""
    labels = np.arange(count) % 10
    pixels = [figures.draw(0, 800 + k, n, (size, size)) for n, k in enumerate(labels)]
    return np.stack(pixels), labels.astype(np.uint8)


def _mnist(folder):
    """Files as MNIST's, of drawn pictures."""
    folder.mkdir()
    for name, count in (("train", 128), ("t10k", 40)):
        pixels, labels = _drawn(count, 28)
        images = struct.pack(">4i", 2051, count, 28, 28) + pixels[..., 1].tobytes()
        (folder / f"{name}-images-idx3-ubyte").write_bytes(images)
        text = struct.pack(">2i", 2049, count) + labels.tobytes()
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(text)


def _cifar(folder):
    """Files as CIFAR-10's, of drawn pictures."""
    folder.mkdir()
    pixels, labels = _drawn(120, 32)
    planes = pixels.transpose(0, 3, 1, 2).reshape(120, -1)
    rows = np.concatenate([labels[:, np.newaxis], planes], axis=1)
    names = [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]
    for name, part in zip(names, np.split(rows, 6), strict=True):
        (folder / name).write_bytes(part.tobytes())


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
    meta = {
        "pretrain_nranks": 2,
        "emb_dim": PLSC_SIZE,
        "num_classes": PLSC_CLASSES,
    }
    (folder / "meta.json").write_text(json.dumps(meta))
