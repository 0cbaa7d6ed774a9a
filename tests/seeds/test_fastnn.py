"""Tests each command, file and program of FastNN's manual, unchanged."""

import json

import pytest

from plsc_tf import train
from plsc_tf.data import load as data_load
from plsc_tf.jobs import train as job
from plsc_tf.options import cli
from plsc_tf.options.settings import Settings
from plsc_tf.storage import files
from plsc_tf.storage.errors import StorageError
from tests import commands
from tests.seeds.commands import ROOT, tfrecord
from tests.seeds.documents import FASTNN
from tests.seeds.fake_oss import FakeOss

SAMPLE = FASTNN["SAMPLE"]
ASSUMED = "loss_type=softmax, no_weight_decay_on=norms,biases,prelus, with_test=false"


def test_the_sample_file_means_what_it_says(tmp_path):
    (tmp_path / "sample.cfg").write_text(SAMPLE)
    settings = cli.parse([f"--flagfile={tmp_path}/sample.cfg"])
    assert settings.as_dict() == Settings().as_dict() | {
        "batch_size": 128,
        "use_fp16": True,
        "dataset_name": "flowers",
        "dataset_dir": "oss://pai-online-beijing.oss-cn-beijing-internal.aliyuncs.com/"
        "fastnn-data/flowers/",
        "model_name": "inception_resnet_v2",
        "optimizer": "sgd",
        "num_classes": 5,
        "job_name": "worker",
        # FastNN always trains this way, so its files do not state it.
        "loss_type": "softmax",
        "no_weight_decay_on": ("norms", "biases", "prelus"),
        "with_test": False,
    }


# Without a GPU, the test uses another precision and a network that takes seconds.
SHORT = (
    "--use_fp16=false --model_name=cifarnet --batch_size=8 --num_replicas=1 "
    "--stop_at_step=2 --export_at_end=false --tensorboard=false"
).split()
TRAIN = "flowers_train_00000-of-00001.tfrecord"


def test_the_sample_file_trains_from_oss(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow_io", reason="oss:// needs tensorflow-io")
    user, key = "somebody", "hush0123456789"
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", user)
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", key)
    tfrecord(tmp_path / TRAIN, 5, 20)
    folder = "fastnn-data/flowers/"
    objects = {folder: b"", folder + TRAIN: (tmp_path / TRAIN).read_bytes()}
    with FakeOss(objects, user) as server:
        endpoint = "oss-cn-beijing-internal.aliyuncs.com"
        (tmp_path / "sample.cfg").write_text(SAMPLE.replace(endpoint, server.endpoint))
        words = ["--flagfile=sample.cfg", *SHORT]
        done = commands.run("train", *words, folder=tmp_path)
        told = done.out + done.err
        assert done.status == 0, told
        # The error of a later run names the folder but does not show the key.
        again = commands.run("train", *words, "--train_files=x", folder=tmp_path)
        failed = again.out + again.err
    assert "flowers: 20 images" in told and "oss://pai-online-beijing." in told
    assert told.count(ASSUMED) == 1
    assert "No effect here: enable_paisoar" in told
    results = json.loads((tmp_path / "output" / "results.json").read_text())
    assert (results["steps"], results["loss_type"]) == (2, "softmax")
    assert results["verification"] == {}
    assert f"oss://pai-online-beijing.{server.endpoint}/{folder}" in failed
    written = [path for path in (tmp_path / "output").rglob("*") if path.is_file()]
    assert len(written) > 5
    for content in (told.encode(), failed.encode(), *(p.read_bytes() for p in written)):
        assert key.encode() not in content and user.encode() not in content


def test_keys_of_oss_come_from_the_environment_only(monkeypatch):
    monkeypatch.delenv("OSS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("OSS_ACCESS_KEY_SECRET", raising=False)
    with pytest.raises(StorageError, match="OSS_ACCESS_KEY_ID is not set"):
        data_load.load("flowers", "oss://bucket.host/flowers", batch_size=8)
    for keys in ("\x01id=me\x02key=hush\x02host=h", "?id=me&key=hush&host=h"):
        with pytest.raises(cli.UsageError, match="must not contain keys") as caught:
            cli.parse([f"--dataset_dir=oss://bucket{keys}/flowers"])
        assert "hush" not in str(caught.value)
    # Other folders cannot be on OSS, because an unreachable server would look like an
    # empty folder.
    with pytest.raises(ValueError, match="for dataset_dir only"):
        files.prepare("oss://bucket.host/runs")
    with pytest.raises(ValueError, match="only read"):
        files.make_dirs("oss://bucket.host/runs")


def test_what_the_file_names_is_not_assumed(tmp_path):
    def parsed(*lines):
        (tmp_path / "own.cfg").write_text(SAMPLE + "\n".join(lines))
        return cli.parse([f"--flagfile={tmp_path}/own.cfg"])

    own = parsed("loss_type=dist_arcface", "val_targets=lfw")
    assert own.head.loss_type == "dist_arcface" and own.evaluation.with_test
    assert own.optimizer.no_weight_decay_on == ()
    assert parsed("margin=0.4").head.loss_type == "dist_arcface"
    assert parsed("no_weight_decay_on=norms").optimizer.no_weight_decay_on == ("norms",)
    # A learning rate in the file is not scaled, as in FastNN.
    assert parsed().learning_rate.lr_base_batch_size == 1024
    assert parsed("learning_rate=0.01").learning_rate.lr_base_batch_size == 0
    scaled = parsed("learning_rate=0.01", "lr_base_batch_size=256")
    assert scaled.learning_rate.lr_base_batch_size == 256
    # FastNN's defaults do not apply to options of other systems.
    plsc = cli.parse(["--num_classes=5", "--job_name=worker"])
    assert plsc.head.loss_type == "dist_arcface" and plsc.evaluation.with_test
    # flags.cfg of such a run states the assumed values.
    cli.write_flags(parsed(), tmp_path / "flags.cfg")
    again = cli.parse([f"--flagfile={tmp_path}/flags.cfg"])
    assert again.head.loss_type == "softmax" and not again.evaluation.with_test


def test_a_parse_function_of_the_manual(tmp_path, monkeypatch):
    (tmp_path / "manual_cifar10.py").write_text(FASTNN["CIFAR10"])
    monkeypatch.syspath_prepend(str(tmp_path))
    tfrecord(tmp_path / "cifar10_train.tfrecord", 10, 20)
    batches = data_load.load(
        "manual_cifar10", tmp_path, batch_size=10, image_size=(32, 32), num_classes=10
    )
    labels = sorted(int(label) for batch in batches for label in batch[1])
    assert labels == sorted([*range(10)] * 2)


# "dataset_name: ... mock data by default": a run needs no options.
def test_training_without_any_option_begins_the_quick_start(monkeypatch, capsys):
    started = []

    def start(settings, *_, **__):
        started.append(settings)
        return settings, None

    monkeypatch.setattr(job, "train", start)
    with pytest.raises(SystemExit, match="0"), commands.kept_state():
        train.run([])
    told = capsys.readouterr().out
    assert "No options: training the quick start on synthetic images" in told
    documented = cli.parse([f"--flagfile={ROOT}/hparams/quickstart.cfg"])
    assert started == [documented]
    assert documented.dataset.dataset_name == "mock"
