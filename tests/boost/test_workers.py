"""Two workers take the steps that two replicas of one process take."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
OPTIONS = (
    "--dataset_name=mock --num_classes=6 --num_sample_per_epoch=64 "
    "--image_shape=3,16,16 --model_name=iresnet --emb_size=8 "
    "--model_options=depths=1-1-1,width=8,head=gap --loss_type=dist_softmax "
    "--batch_size=8 --num_epochs=1 --lr_base_batch_size=0 --learning_rate=0.05 "
    "--nowith_test --noexport_at_end --norun_report --notensorboard --save_losses "
    "--dim_reduce_scope=all"
).split()


def run(*arguments, cwd):
    done = subprocess.run(
        [sys.executable, "-m", *arguments, *OPTIONS],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def losses(folder):
    lines = (folder / "losses.txt").read_text().splitlines()
    return [float.fromhex(line.split()[1]) for line in lines]


@pytest.mark.slow
def test_workers_walk_like_replicas(tmp_path):
    run(
        "plsc_tf.train",
        "--num_replicas=2",
        "--model_save_dir=first",
        "--snapshot_every_n_steps=1",
        cwd=tmp_path,
    )
    second = [
        "--dim_reduce",
        "--n_component=2",
        "--checkpoint_dir=first",
        "--weight_load_dir=first/snapshots",
    ]
    run(
        "plsc_tf.train",
        "--num_replicas=2",
        "--model_save_dir=replicas",
        *second,
        cwd=tmp_path,
    )
    run(
        "plsc_tf.launch",
        "--num_workers=2",
        "--log_dir=logs",
        "--",
        "--model_save_dir=workers",
        *second,
        cwd=tmp_path,
    )
    found, expected = (losses(tmp_path / name) for name in ("workers", "replicas"))
    assert len(found) == 4
    assert found == pytest.approx(expected, rel=1e-5)
