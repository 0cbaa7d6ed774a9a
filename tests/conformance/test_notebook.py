"""A notebook cell as Keras users would write it, on a folder as PLSC has it.

The cell is that of the design, with a small network, few classes and small batches.
"""

import pickle

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

CELL = """\
import plsc_tf as plsc, keras
strategy = plsc.strategy(num_replicas=2)
with strategy.scope():
    model = plsc.Classifier(
        backbone=plsc.backbones.build("resnet10", embedding_size=32, width=16),
        head=plsc.ShardedHead(num_classes=5, margins=plsc.ARCFACE, scale=64.0,
                              sample_rate=1.0))
    model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9))
faces = plsc.load("ms1m", "train_data", batch_size=3 * strategy.num_replicas_in_sync)
lfw = plsc.load_pairs("train_data/lfw.bin")
history = model.fit(faces, epochs=2, callbacks=[
    plsc.Verification({"lfw": lfw}), plsc.Checkpoint("runs/ms1m", max_to_keep=5)])
result = plsc.verify_pairs(model.embed, lfw)
path = plsc.export_saved_model(model, "serving/face")
"""


@pytest.fixture
def train_data(tmp_path):
    """train_data/ with images/, label.txt and lfw.bin."""
    images = tmp_path / "train_data" / "images"
    images.mkdir(parents=True)
    rng = np.random.default_rng(0)
    lines, encoded = [], []
    for number in range(14):
        path = images / f"{number:08d}.jpg"
        noise = rng.integers(0, 256, (112, 112, 3)).astype(np.uint8)
        Image.fromarray(noise).save(path)
        lines.append(f"images/{path.name} {number % 5}\n")
        encoded.append(path.read_bytes())
    (images.parent / "label.txt").write_text("".join(lines))
    # 10 pairs of a picture with itself or with the next one, in turn
    pairs = [encoded[i + k * (i % 2)] for i in range(10) for k in (0, 1)]
    same = [i % 2 == 0 for i in range(10)]
    (images.parent / "lfw.bin").write_bytes(pickle.dumps((pairs, same)))
    return tmp_path


def test_the_cell_runs(train_data, monkeypatch):
    assert len(CELL.splitlines()) <= 15
    monkeypatch.chdir(train_data)
    names = {}
    exec(CELL, names)  # noqa: S102
    seen = names["history"].history["lfw_accuracy"]
    assert len(seen) == 2 and seen[-1] == names["result"].accuracy
    assert names["result"].num_pairs == 10
    assert (train_data / "runs" / "ms1m" / "1" / "manifest.json").is_file()

    # What the export says of a JPEG is what the model says of its pixels.
    jpeg = (train_data / "train_data" / "images" / "00000003.jpg").read_bytes()
    served = tf.saved_model.load(names["path"]).signatures["serving_default"]
    exported = served(bytes=tf.constant([jpeg]))["embedding"]
    pixels = tf.io.decode_jpeg(jpeg, dct_method="INTEGER_ACCURATE")[tf.newaxis]
    np.testing.assert_allclose(exported, names["model"].embed(pixels), atol=1e-5)
