"""The blocks of Python of the guides run: page by page, in order, in one namespace.

Where a page says "your model" or "your pictures", there is a small network, trained on
drawn people.
"""

import contextlib
import dataclasses
import pathlib
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf import convert
from plsc_tf.data import images
from plsc_tf.options import cli
from plsc_tf.serving.export import Extras
from tests.conformance import guide_commands as guides, guide_folder
from tests.importers.paddle_writer import write_checkpoint
from tests.importers.theirs import Plsc
from tests.marks import slow
from tests.networks import compiled
from tests.server.server_tools import served

DOCS = guides.ROOT / "docs"
EMBEDDING, SIDE = 512, 48
# Pages whose blocks test_readme.py, test_guides.py and server/test_access.py run.
RUN_BY = ("README.md", "python.md", "from_plsc.md", "public_server.md")
# Pages that build a large network.
SLOW = {"importing.md", "zoo.md"}
# Blocks that serve until they are ended, or need a detector or a calibration:
# seeds/test_plsc.py, server/test_faces.py, server/test_quality_routes.py and
# evaluation/test_calibration.py run them.
ELSEWHERE = "PLSCServer().with_model", "encode_faces", "client.verify", "tion.fit("
# What a page shows, and what stands for it here.
REPLACED = {
    "importing.md": {
        "work_dirs/ms1mv3_r50": "output/119",
        '"iresnet50"': '"ResNet50", embedding_size=6, image_shape=(16, 16, 3)',
        "read(0, 1000)": "read(0, 50)",
    }
}
QUICKSTART = (
    "dataset_name=mock num_classes=6 num_sample_per_epoch=24 image_shape=3,16,16 "
    "model_name=lenet dropout=0 emb_size=8 "
    "batch_size=12 num_replicas=1 num_epochs=1 with_test=False export_at_end=False "
    "run_report=False tensorboard=False"
)


@dataclasses.dataclass
class World:
    """What the pages share.

    Attributes:
        folder: what each page gets a copy of as its working directory.
        model: a trained `Classifier`.
        faces: its training pictures, as batches.
        ports: the pages' ports, and those of a server of the model's export.
        embeddings: of photo.jpg by the model as it was exported, float32 [1, 512].
    """

    folder: pathlib.Path
    model: plsc_tf.Classifier
    faces: object
    ports: dict
    embeddings: np.ndarray

    @property
    def pictures(self):
        """uint8 [24, 48, 48, 3]."""
        return next(iter(self.faces))[0]


BLOCKS = {path.name: guides.blocks(path, "python") for path in guides.GUIDES}
PAGES = [name for name, blocks in BLOCKS.items() if blocks]


def small_network():
    inputs = keras.Input((SIDE, SIDE, 3))
    x = keras.layers.Conv2D(8, 5, strides=4, activation="relu")(inputs)
    return keras.Model(inputs, keras.layers.Dense(EMBEDDING)(keras.layers.Flatten()(x)))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    pytest.importorskip("aiohttp", reason="the server needs the extra serving")
    folder = tmp_path_factory.mktemp("blocks")
    guide_folder.fill(folder)
    (folder / "hparams").mkdir()
    (folder / "hparams" / "quickstart.cfg").write_text("\n".join(QUICKSTART.split()))
    with contextlib.chdir(folder):
        head = plsc_tf.ShardedHead(6, loss=plsc_tf.ARCFACE)
        model = compiled(small_network, head, optimizer=lambda: plsc_tf.Momentum(0.01))
        faces = plsc_tf.load(
            "folder", "photos", batch_size=24, image_size=(SIDE, SIDE), num_classes=6
        )
        checkpoint = plsc_tf.Checkpoint("output/quickstart")
        model.fit(faces, epochs=8, initial_epoch=7, callbacks=[checkpoint], verbose=0)
        known = tuple(guide_folder.jpeg(0, number) for number in range(100))
        extras = Extras(validation=known)
        plsc_tf.export_saved_model(model, "serving/face", classes=5, extras=extras)
        photo = images.decode(pathlib.Path("photo.jpg").read_bytes())
    embeddings = model.embed(images.resize(photo[tf.newaxis], (SIDE, SIDE)))
    with served(folder / "serving" / "face", grpc_port=0) as server:
        ports = {"8010": server["port"], "8500": server["grpc_port"]}
        yield World(folder, model, faces, ports, embeddings)


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    """The working directory."""
    shutil.copytree(world.folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def with_ports(text, world):
    for shown, real in world.ports.items():
        text = re.sub(rf"(127\.0\.0\.1|localhost):{shown}", rf"\1:{real}", text)
    return text


def _rows_and_names(world, here):
    """What a program of one's own has made."""
    for loose in (".DS_Store", "notes.txt", "ann/.DS_Store", "ann/Thumbs.db"):
        (here / "faces" / loose).write_bytes(b"no picture")
    names = (here / "faces.txt").read_text().split()
    return {"rows": np.load(here / "faces.npy"), "names": names}


def _exported(world, here):
    """The files that the page's commands make, and what its last blocks speak of."""
    encoded = [guide_folder.jpeg(0, number) for number in range(4)]
    formats = ("saved_model", "tflite_int8", "onnx")
    extras = Extras(formats=formats, calibration=world.pictures, pictures=encoded)
    shutil.rmtree("serving")
    plsc_tf.export_saved_model(world.model, "serving/face", extras=extras)
    return {"model": world.model, "images": world.pictures, "encoded": encoded}


def _photograph(world, here):
    picture = tf.io.encode_jpeg(np.zeros((450, 600, 3), np.uint8))
    (here / "photos" / "ann" / "party.jpg").write_bytes(picture.numpy())
    return {}


def _model(world, here):
    return {"model": world.model, "faces": world.faces}


def _figures(world, here):
    (here / "output" / "seen").mkdir()
    lines = '{"step": 1, "loss": 2.5}\n{"step": 1, "loss_scale": 1}\n'
    (here / "output" / "seen" / "metrics.jsonl").write_text(lines)
    return _model(world, here)


def _from_plsc(world, here):
    """PLSC's files of a small ResNet50, because `.[dev]` does not install PyTorch."""
    folder, network = here / "output" / "119", Plsc()
    folder.mkdir()
    pixels = np.zeros((2, 16, 16, 3), np.uint8)
    network.embed(pixels, (3, 4, 14, 3), (64, 128, 256, 512), 6)
    write_checkpoint(folder, network.weights, np.ones((2, 25, 6), np.float32))
    return {}


# What a page takes for granted: the names, and the files of its commands.
GIVEN = {
    "checkpoints.md": _model,
    "embed.md": _photograph,
    "evaluation.md": _rows_and_names,
    "export.md": _exported,
    "importing.md": _from_plsc,
    "logs.md": _figures,
}


def _who(names, world, here):
    assert names["face"].shape == (112, 112, 3)
    with plsc_tf.Gallery("people", 16) as gallery:
        assert gallery.identify(np.load("new.npy"))[0][0].name == "ann"


def _lists_and_figures(names, world, here):
    # Six pairs of the same, 114 of different people; a gallery of every second one.
    lines = (here / "pairs.txt").read_text().splitlines()
    assert len(lines) == 120
    assert sum(line.endswith(" 1") for line in lines) == 6
    assert len((here / "known.txt").read_text().splitlines()) == 3
    assert names["result"].accuracy > 0.95
    assert len(names["sought"]) == 18


def _served(names, world, here):
    np.testing.assert_allclose(names["embeddings"], world.embeddings, atol=1e-3)


def _parsed(names, world, here):
    """The page's parse_fn reads what the commands of the guides write."""
    words = "--dataset_name=folder --dataset_dir=photos --output_dir=shards"
    convert.main(cli.parse(words.split()))
    records = tf.data.TFRecordDataset(sorted(map(str, here.glob("shards/*.tfrecord"))))
    labels = {int(names["parse_fn"](record)[1]) for record in records}
    assert labels == set(range(len(list((here / "photos").iterdir()))))


# What the blocks leave behind, of some pages.
CHECKS = {
    "embed.md": _who,
    "evaluation.md": _lists_and_figures,
    "from_fastnn.md": _parsed,
    "getting_started.md": _served,
    "serving.md": _served,
}


@pytest.mark.parametrize(
    "page",
    [slow(page) if page in SLOW else page for page in PAGES if page not in RUN_BY],
)
def test_the_blocks_of_a_page_run(page, world, here):
    names = GIVEN[page](world, here) if page in GIVEN else {}
    for block in BLOCKS[page]:
        if any(words in block for words in ELSEWHERE):
            continue
        for shown, real in REPLACED.get(page, {}).items():
            block = block.replace(shown, real)
        exec(compile(with_ports(block, world), page, "exec"), names)  # noqa: S102
    if page in CHECKS:
        CHECKS[page](names, world, here)


def test_classify_by_curl(world, here):
    (line,) = [line for line in guides.lines(DOCS / "export.md") if "curl" in line]
    assert '"scores"' in guides.run_curl(with_ports(line, world))
