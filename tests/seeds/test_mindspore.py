"""Tests the commands of MindSpore's tutorial and of the Paddle course, unchanged."""

import json
import pathlib
import re
import shlex

import numpy as np
import pytest

from plsc_tf.options import cli
from plsc_tf.parallel.launch import plan
from tests import commands
from tests.seeds.commands import ROOT, class_folders, shell
from tests.seeds.plsc_folder import results as outcome

# Makes the recipes' network small enough for a test.
TINY = (
    "--model_name=lenet --model_options= --dropout=0 --image_shape=3,16,16 "
    "--emb_size=8 --num_replicas=1 --export_at_end=false --tensorboard=false"
)


def recipe(stage):
    return cli.parse([f"--flagfile={ROOT}/hparams/imagenet_resnet50_stage{stage}.cfg"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the tutorial's images, in its layout, and its scripts."""
    folder = tmp_path_factory.mktemp("mindspore")
    class_folders(folder / "imagenet" / "train", classes=4, images=8)
    class_folders(folder / "imagenet" / "validation_preprocess", 4, 3, first=100)
    for path in (ROOT / "scripts").glob("*.sh"):
        (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def script(folder):
    """A function that runs a script's command line.

    The function trains in this process, and returns the log. `python` is a program that
    prints its arguments.
    """
    (folder / "bin").mkdir()
    python = folder / "bin" / "python"
    python.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)

    def run(line, train=True):
        told = shell(f'PATH="{folder}/bin:$PATH" {line}', folder)
        before, _, words = told.partition("-m\nplsc_tf.train\n")
        if not train:
            return words.splitlines()
        done = commands.run("train", *words.splitlines(), folder=folder)
        assert done.status == 0, done.err
        return before + done.err

    return run


# "bash run_stage_1.sh ./imagenet"
@pytest.fixture(scope="module")
def stage_1(script, folder):
    return script(
        f"bash run_stage_1.sh ./imagenet {TINY} --num_epochs=3 --batch_size=8 "
        "--model_save_dir=device0_stage_1 --snapshot_start_epoch=1"
    )


def test_stage_1(stage_1, folder):
    told = "run_stage_1.sh: 4 classes in ./imagenet/train, hparams/dim_reduce"
    assert told in stage_1
    assert "folder: 32 images" in stage_1
    assert len(list((folder / "device0_stage_1" / "snapshots").glob("step_*"))) == 8
    results = outcome(folder / "device0_stage_1")
    assert results["steps"] == 12 and results["num_classes"] == 4
    # "acc = model.eval(ds_eval)" evaluates the images in validation_preprocess.
    assert results["test"]["images"] == 12
    # TimeMonitor(data_size=step_size) logs the time of each epoch and step.
    assert len(re.findall(r"epoch \d took [\d.]+ s, [\d.]+ ms per step", stage_1)) == 3
    rows = (folder / "device0_stage_1" / "metrics.jsonl").read_text().splitlines()
    times = [row for row in map(json.loads, rows) if "epoch/seconds" in row]
    assert [row["step"] for row in times] == [4, 8, 12]
    step = results["seconds_per_step"]
    assert results["seconds_per_epoch"] == pytest.approx(4 * step)
    report = (folder / "device0_stage_1" / "report.html").read_text()
    assert "seconds per epoch" in report


# "bash run_stage_2.sh ./imagenet ./device0_stage_1/checkpoint_stage_1/
# resnet-70_625.ckpt", with and without a further argument "/path/pca_mat.npy".
def test_stage_2_and_its_projection(stage_1, script, folder):
    name = pathlib.Path(outcome(folder / "device0_stage_1")["checkpoint_dir"]).name
    line = f"bash run_stage_2.sh ./imagenet ./device0_stage_1/{name}"
    options = (
        f"{TINY} --batch_size=8 --n_component=4 --model_save_dir=stage_2 "
        "--run_report=false"
    )
    script(f"{line} {options}")
    results = outcome(folder / "stage_2")
    assert results["steps"] == 4 and results["test"]["images"] == 12
    assert np.load(folder / "stage_2" / "pca_mat.npy", mmap_mode="r").shape[0] == 4
    plain = cli.parse(script(f"{line} {options}", train=False))
    given = cli.parse(script(f"{line} stage_2/pca_mat.npy {options}", train=False))
    assert given == plain.replace(pca_mat_path="stage_2/pca_mat.npy")


def test_a_thousand_classes_are_trained_as_in_the_tutorial(tmp_path):
    for number in range(1000):
        (tmp_path / "imagenet" / "train" / f"n{number:08d}").mkdir(parents=True)
    told = shell(
        f"exec 2>&1; . {ROOT}/scripts/recipe.sh; recipe 2 ./imagenet; "
        'echo "${options[@]}"',
        tmp_path,
    )
    assert "1000 classes in ./imagenet/train, hparams/imagenet_resnet50_stage2" in told
    settings = cli.parse(told.splitlines()[-1].split())
    assert settings == recipe(2).replace(dataset_dir="./imagenet")


def test_the_tutorials_settings():
    one, two = recipe(1), recipe(2)
    # The data set has batch_size=256 and train_image_size=224; model.train(70) and (2).
    assert (one.training.batch_size, one.preprocessing.image_size) == (256, (224, 224))
    assert (one.training.num_epochs, two.training.num_epochs) == (70, 2)
    # get_lr(lr_init=0, lr_end=0.0, lr_max=0.8, warmup_epochs=5, total_epochs=90,
    #        steps_per_epoch=step_size, lr_decay_mode="linear")
    rate = one.learning_rate
    assert (rate.learning_rate, rate.end_learning_rate) == (0.8, 0.0)
    assert (rate.warmup_epochs, rate.lr_total_epochs) == (5, 90)
    assert rate.learning_rate_decay_type == "linear" and rate.lr_base_batch_size == 0
    # CrossEntropySmooth(smooth_factor=0.1), Momentum(group_params, lr, 0.9,
    # loss_scale=1024), amp_level="O2"
    assert one.head.label_smoothing == two.head.label_smoothing == 0.1
    assert (one.optimizer.optimizer, one.optimizer.momentum) == ("momentum", 0.9)
    assert one.precision.use_fp16 and one.precision.loss_scale == 1024
    # Weights: every epoch, keep_checkpoint_max=40. Full checkpoints: every 10 epochs
    # (step_size * 10), keep_checkpoint_max=10.
    assert (one.boost.snapshots_per_epoch, one.boost.snapshot_max) == (1, 40)
    assert one.checkpoints.save_checkpoints_epochs == 10
    assert one.checkpoints.keep_checkpoint_max == 10
    # boost_dict
    boost = two.boost
    assert (boost.dim_reduce_rho, boost.dim_reduce_gamma) == (0.55, 0.9)
    assert (boost.dim_reduce_alpha, boost.dim_reduce_sigma) == (0.001, 0.4)
    assert (boost.n_component, boost.dim_reduce_timeout) == (32, 1200)


# "$ python -m paddle.distributed.launch --selected_gpus=0,1,2,3 --log_dir ./mylog
# train_multi_gpu.py". Options replace the course's program: accuracy, check_shape and
# check_content, a regularizer for all weights and for one layer, curves, checkpoints.
COURSE = (
    "--num_workers=2 --log_dir ./mylog -- "
    "--dataset_name=folder --dataset_dir=imagenet --num_classes=4 "
    f"{TINY} --batch_size=16 --loss_type=softmax --num_epochs=1 --calc_acc "
    "--check_shape --check_content --weight_decay=1e-4 "
    "--weight_decay_on=embedding_dense:1e-3 --val_targets=test --optimizer=adam "
    "--learning_rate=0.01 --learning_rate_decay_type=polynomial "
    "--end_learning_rate=0.001 --model_save_dir=checkpoint"
)


def test_the_course(folder):
    own, words = plan.split(shlex.split(COURSE))
    assert own == ["--num_workers=2", "--log_dir", "./mylog"]
    done = commands.run("train", *words, folder=folder)
    assert done.status == 0, done.err
    results = outcome(folder / "checkpoint")
    assert 0 <= results["training_accuracy"] <= 1
    assert results["test"]["images"] == 12
    assert "weight_decay_on=embedding_dense: 1 of " in done.err
    assert "<svg" in (folder / "checkpoint" / "report.html").read_text()  # curves
