"""The scripts of PLSC's manual do what it says of them."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from tests.entry import plsc_scripts as scripts
from tests.entry.plsc_folder import SMALL, make_train_data, results

ROOT = pathlib.Path(__file__).parents[2]


def test_train_val_and_export(run_script, folder, capsys):
    run_script(scripts.TRAIN)
    assert (folder / "saved_model" / "0" / "manifest.json").is_file()
    found = results(folder / "saved_model")
    assert found["steps"] == 3  # 12 pictures, 4 at a time
    run_script(scripts.VAL)
    accuracy = found["verification"]["lfw"]["accuracy"]
    printed = capsys.readouterr().out
    assert f"lfw: verification accuracy  {accuracy:.4f}" in printed
    (folder / "saved_model").rename(folder / "pretrain_model")
    run_script(scripts.EXPORT)
    served = tf.saved_model.load(str(folder / "inference_model" / "1"))
    data = (folder / "train_data" / "images" / "00000003.jpg").read_bytes()
    exported = served.signatures["serving_default"](bytes=tf.constant([data]))

    entry = plsc_tf.Entry(checkpoint_dir=str(folder / "pretrain_model"), **SMALL)
    entry.predict_reader = lambda: iter([data, data])
    embeddings = entry.predict()
    assert embeddings.shape == (2, 8)
    np.testing.assert_allclose(embeddings[:1], exported["embedding"], atol=1e-5)


def test_a_network_of_ones_own(run_script, folder):
    run_script(scripts.CUSTOM_MODEL, model_options="", model_save_dir="own")
    flags = (folder / "own" / "flags.cfg").read_text()
    assert "--model_name=__main__.ResNet" in flags
    assert results(folder / "own")["steps"] == 3


def test_readers_of_ones_own(run_script, folder):
    # In the reader's order, without the mirror of either side.
    for script in (scripts.CUSTOM_READER, scripts.BASE64_READER):
        name = f"reader{scripts.CUSTOM_READER == script}"
        run_script(script, model_save_dir=name, num_sample_per_epoch=12)
        assert results(folder / name)["steps"] == 3


def test_optimizer_and_test_reader(folder, monkeypatch):
    monkeypatch.chdir(folder)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (20, 3, 16, 16)).astype(np.float32)
    entry = plsc_tf.Entry(**{**SMALL, "num_replicas": 2})
    entry.set_optimizer(
        keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.5, 6))
    )
    entry.set_model_save_dir("sgd")
    entry.set_log_period(1)
    entry.test_reader = lambda: (
        (pictures[i], pictures[(i + i % 2) % 20], i % 2 == 0) for i in range(10)
    )
    found = entry.train()
    # Equal pictures have equal embeddings: the best threshold knows them.
    assert found["verification"]["test_reader"]["accuracy"] == 1.0
    entry = plsc_tf.Entry(**SMALL, model_save_dir="sgd", num_replicas=2)
    with pytest.raises(ValueError, match="optimizer given in Python"):
        entry.train()


def test_half_precision(run_script, folder):
    run_script(scripts.MIXED_PRECISION, model_save_dir="half")
    assert "--use_fp16=true" in (folder / "half" / "flags.cfg").read_text()


def test_server_and_client(run_script, folder):
    pytest.importorskip("aiohttp")
    entry = plsc_tf.Entry(**SMALL, model_save_dir=str(folder / "half"))
    exported = entry.convert_for_prediction()["SavedModel"]
    server = scripts.SERVER.replace(
        "'/XXX/XXX'", repr(str(pathlib.Path(exported).parent))
    )
    (folder / "data").mkdir()
    picture = folder / "train_data" / "images" / "00000000.jpg"
    (folder / "data" / "00000000.jpg").write_bytes(picture.read_bytes())
    names = {}
    serving = server.replace("8010)", "0, block=False)")
    exec(compile(serving, "server.py", "exec"), names)  # noqa: S102
    try:
        found = run_script(scripts.CLIENT.replace("8010", str(names["fs"].port)))
    finally:
        names["fs"].stop()
    assert np.shape(found["result"]) == (1, 8)


@pytest.mark.slow
def test_the_scripts_with_all_defaults(tmp_path):
    """ResNet50, 85,742 classes, 112 × 112 pixels: to the letter, but for the data."""
    make_train_data(tmp_path, [0, 0, 1, 85741], size=112)
    export = scripts.EXPORT.replace("pretrain_model", "saved_model")
    for script in (scripts.TRAIN, scripts.VAL, export):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert results(tmp_path / "saved_model")["num_classes"] == 85742
