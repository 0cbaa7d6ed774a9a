"""Tests each command and script of PLSC's documents (seeds 000 and 004)."""

import os
import re
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from tests import programs
from tests.marks import slow
from tests.seeds import plsc_folder
from tests.seeds.documents import PLSC
from tests.seeds.plsc_folder import SMALL, make_train_data, results

# Calls all methods one after another in the same processes.
EVERY_METHOD = f"""{PLSC["TRAIN"]}
import os
import numpy as np

with open("train_data/images/00000000.jpg", "rb") as file:
    image = file.read()
ins = Entry(checkpoint_dir="./saved_model")
ins.predict_reader = lambda: iter([image, image])
np.save(f"embeddings-{{os.getpid()}}.npy", ins.predict())
{PLSC["EXPORT"]}
{PLSC["VAL"]}
for number, (folder, timeout) in enumerate(
    [("saved_model", 99), ("nowhere", 30), ("saved_model", 30)]
):
    try:
        Entry(checkpoint_dir=folder, worker_timeout=timeout).test()
    except Exception as error:
        print(f"error {{number}}: {{error}}")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which the scripts run; the tests depend on their order."""
    folder = tmp_path_factory.mktemp("plsc")
    make_train_data(folder, [number % 5 for number in range(12)])
    return folder


@pytest.fixture
def run_script(folder, monkeypatch):
    """A function that runs a script in the folder, like `python script.py`.

    The function returns the script's global names.
    """

    def run(script, **options):
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            for name, module in plsc_folder.modules(**options).items():
                patch.setitem(sys.modules, name, module)
            names = {"__name__": "__main__", "LAYERS": 10, "EMB_DIM": 8}
            exec(compile(script, "script.py", "exec"), names)  # noqa: S102
        return names

    return run


def test_train_val_and_export(run_script, folder, capsys):
    run_script(PLSC["TRAIN"])
    assert (folder / "saved_model" / "0" / "manifest.json").is_file()
    found = results(folder / "saved_model")
    assert found["steps"] == 3  # 12 images, 4 at a time
    # The script does not set the number; the data's replaces PLSC's default of 85,742.
    assert found["num_classes"] == 5
    accuracy = found["verification"]["lfw"]["accuracy"]
    assert f"lfw: verification accuracy  {accuracy:.4f}" in capsys.readouterr().out
    run_script(PLSC["VAL"])
    assert f"lfw: accuracy        {accuracy:.5f}" in capsys.readouterr().out
    (folder / "saved_model").rename(folder / "pretrain_model")
    run_script(PLSC["EXPORT"])
    served = tf.saved_model.load(str(folder / "inference_model" / "1"))
    data = (folder / "train_data" / "images" / "00000003.jpg").read_bytes()
    exported = served.signatures["serving_default"](bytes=tf.constant([data]))

    entry = plsc_tf.Entry(checkpoint_dir=str(folder / "pretrain_model"), **SMALL)
    entry.predict_reader = lambda: iter([data, data])
    embeddings = entry.predict()
    assert embeddings.shape == (2, 8)
    np.testing.assert_allclose(embeddings[:1], exported["embedding"], atol=1e-5)


def test_a_number_of_classes_holds_where_it_was_set(run_script):
    with pytest.raises(ValueError, match="has 5 classes.*--num_classes"):
        run_script(PLSC["CLASSES"], model_save_dir="given")


def test_a_network_of_ones_own(run_script, folder):
    options = {"dropout": None, "model_save_dir": "own", "with_test": False}
    run_script(PLSC["CUSTOM_MODEL"], **options)
    assert "--model_name=__main__.ResNet" in (folder / "own" / "flags.cfg").read_text()
    assert results(folder / "own")["steps"] == 3


def test_a_reader_of_ones_own(run_script, folder):
    # The images come in the reader's order; plsc_tf does not flip them again.
    options = {"model_save_dir": "reader", "num_sample_per_epoch": 12}
    run_script(PLSC["CUSTOM_READER"], **options, num_classes=5, with_test=False)
    found = results(folder / "reader")
    assert (found["steps"], found["num_classes"]) == (3, 5)


def test_optimizer_and_test_reader(folder, monkeypatch):
    monkeypatch.chdir(folder)
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (20, 3, 16, 16)).astype(np.float32)
    # LeNet's embeddings of noise are too much alike to be told apart by a threshold.
    network = {"model_name": "iresnet", "model_options": "depths=1-1,width=8,head=gap"}
    options = {**SMALL, **network, "dropout": None, "num_replicas": 2}
    entry = plsc_tf.Entry(**options)
    rate = keras.optimizers.schedules.CosineDecay(0.5, 6)
    entry.set_optimizer(keras.optimizers.SGD(rate))
    entry.set_model_save_dir("sgd")
    entry.set_log_period(1)
    entry.test_reader = lambda: (
        (pictures[i], pictures[(i + i % 2) % 20], i % 2 == 0) for i in range(10)
    )
    # Identical images have identical embeddings, so a threshold can separate them.
    assert entry.train()["verification"]["test_reader"]["accuracy"] == 1.0
    entry = plsc_tf.Entry(**options, model_save_dir="sgd")
    with pytest.raises(ValueError, match="with optimizer from Python"):
        entry.train()


def test_what_follows_a_restart_is_of_the_new_run(folder, monkeypatch):
    monkeypatch.chdir(folder)
    options = {**SMALL, "model_save_dir": "one", "stop_at_step": 1}
    plsc_tf.Entry(**options).train()
    entry = plsc_tf.Entry(**options, restart=True)
    entry.train()
    assert entry.convert_for_prediction()["checkpoint"].startswith("one-2/")


@pytest.mark.slow
def test_half_precision(run_script, folder):
    run_script(PLSC["MIXED_PRECISION"], model_save_dir="half")
    assert "--use_fp16=true" in (folder / "half" / "flags.cfg").read_text()


def test_server_and_client(run_script, folder, capsys):
    pytest.importorskip("aiohttp")
    if not (folder / "inference_model").exists():
        test_train_val_and_export(run_script, folder, capsys)
    server = PLSC["SERVER"].replace("'/XXX/XXX'", repr(str(folder / "inference_model")))
    (folder / "data").mkdir()
    picture = folder / "train_data" / "images" / "00000000.jpg"
    (folder / "data" / "00000000.jpg").write_bytes(picture.read_bytes())
    names = run_script(server.replace("8010)", "0, block=False)"))
    try:
        found = run_script(PLSC["CLIENT"].replace("8010", str(names["fs"].port)))
    finally:
        names["fs"].stop()
    assert np.shape(found["result"]) == (1, 8)


@pytest.mark.parametrize("workers", [2, slow(1), slow(3)])
def test_every_method_under_the_launcher(workers, tmp_path):
    """Runs `python -m paddle.distributed.launch --selected_gpus=... script.py`."""
    make_train_data(tmp_path, [number % 5 for number in range(12)])
    plsc_folder.write_library(tmp_path)
    (tmp_path / "script.py").write_text(EVERY_METHOD)
    (tmp_path / "pretrain_model").symlink_to("saved_model")
    command = f"-m plsc_tf.launch --num_workers={workers} --log_dir=logs script.py"
    programs.run(*command.split(), cwd=tmp_path)
    # The chief's log is the first one; only the chief prints the tables.
    logs = sorted((tmp_path / "logs").glob("worker-*.log"))
    chief, *others = [log.read_text() for log in logs]
    assert len(others) == workers - 1
    found = results(tmp_path / "saved_model")
    assert (found["steps"], found["num_classes"]) == (-(-3 // workers), 5)
    accuracy = found["verification"]["lfw"]["accuracy"]
    assert f"lfw: accuracy        {accuracy:.5f}" in chief
    assert "SavedModel  " in chief
    assert not any("lfw: accuracy  " in log or "SavedModel  " in log for log in others)
    assert os.listdir(tmp_path / "inference_model") == ["1"]
    entry = plsc_tf.Entry(**SMALL, checkpoint_dir=str(tmp_path / "saved_model"))
    image = (tmp_path / "train_data" / "images" / "00000000.jpg").read_bytes()
    entry.predict_reader = lambda: iter([image, image])
    alone = entry.predict()
    embeddings = list(tmp_path.glob("embeddings-*.npy"))
    assert len(embeddings) == workers
    for path in embeddings:
        np.testing.assert_allclose(np.load(path), alone, atol=1e-6)
    for log in [chief, *others] if workers > 1 else []:
        errors = re.findall("^error .*", log, re.MULTILINE)
        told = r"worker_timeout=30\. Received: cluster=worker \d of "
        assert re.search(told, errors[0])
        # A failed run leaves the cluster, so later runs in the same processes fail too.
        assert "nowhere" in errors[1]
        assert "This process has left its cluster after an error" in errors[2]


@pytest.mark.slow
def test_the_scripts_with_all_defaults(tmp_path):
    """Runs `python train.py` verbatim: ResNet50 and 112 × 112 pixels."""
    make_train_data(tmp_path, [0, 0, 1, 2], size=112)
    (tmp_path / "plsc.py").write_text("from plsc_tf import *")
    (tmp_path / "pretrain_model").symlink_to("saved_model")
    for name in ("TRAIN", "VAL", "EXPORT"):
        (tmp_path / f"{name}.py").write_text(PLSC[name])
        programs.run(f"{name}.py", cwd=tmp_path)
    assert results(tmp_path / "saved_model")["num_classes"] == 3
    assert os.listdir(tmp_path / "inference_model") == ["1"]
