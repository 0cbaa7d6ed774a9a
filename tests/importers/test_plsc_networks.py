"""Folders of PLSC: which files make a checkpoint, and how the head is put together."""

import json

import numpy as np
import pytest

from plsc_tf.checkpoints import importers
from tests.importers.paddle_writer import saved, stream

CLASSES, RANKS, SIZE = 11, 4, 3
WEIGHT = np.random.default_rng(0).normal(size=(CLASSES, SIZE)).astype(np.float32)
BIAS = np.arange(CLASSES, dtype=np.float32)


def write(folder, name, array):
    path = folder / name
    pickled = name.endswith((".pdparam", ".pdopt"))
    path.write_bytes(saved(array) if pickled else stream(array))


def write_head(folder, prefix="dist@arcface", ends=("", ""), bias=False):
    """Shards of ceil(11 / 4) = 3, 3, 3 and 2 classes, and momentum beside them."""
    for rank in range(RANKS):
        own = slice(3 * rank, 3 * rank + 3)
        name = f"{prefix}@rank@{rank:05d}"
        columns = np.ascontiguousarray(WEIGHT[own].T)
        write(folder, f"{name}.w_0{ends[0]}", columns)
        write(folder, f"{name}.w_0_velocity_0{ends[1]}", columns * 2)
        if bias:
            write(folder, f"{name}.b_0{ends[0]}", BIAS[own])
            write(folder, f"{name}.b_0_velocity_0{ends[1]}", BIAS[own] * 3)


def write_meta(folder, **changes):
    meta = {"pretrain_nranks": RANKS, "emb_dim": SIZE, "num_classes": CLASSES}
    (folder / "meta.json").write_text(json.dumps({**meta, **changes}))


@pytest.fixture
def folder(tmp_path):
    """A checkpoint of PLSC 0.1, with one array of the backbone."""
    write(tmp_path, "conv2d_0.w_0", np.ones((1, 1, 1, 1), np.float32))
    write(tmp_path, "conv2d_0.w_0_velocity_0", np.ones((1, 1, 1, 1), np.float32))
    write(tmp_path, "learning_rate_0", np.ones(1, np.float32))
    write_head(tmp_path)
    write_meta(tmp_path)
    return tmp_path


def whole(rows):
    return rows.read(0, rows.shape[0])


def test_version_0_1(folder):
    source = importers.read(str(folder))
    assert source.format == "plsc"
    assert (source.ranks, source.num_classes) == (RANKS, CLASSES)
    assert source.loss == "dist_arcface"
    assert list(source.backbone) == ["conv2d_0.w_0"]
    assert set(source.arrays) == {"weight"}
    np.testing.assert_array_equal(whole(source.arrays["weight"]), WEIGHT)
    assert "conv2d_0.w_0_velocity_0" in source.left


@pytest.mark.parametrize("meta", [True, False])
def test_version_0_2(tmp_path, meta):
    write(tmp_path, "conv2d_0.w_0.pdparam", np.ones((1, 1, 1, 1), np.float32))
    write_head(tmp_path, "dist@margin_softmax", (".pdparam", ".pdopt"), bias=True)
    if meta:
        write_meta(tmp_path, epoch=3, lr_state={"last_epoch": 3})
    source = importers.read(str(tmp_path))
    assert source.num_classes == (CLASSES if meta else None)
    np.testing.assert_array_equal(whole(source.arrays["weight"]), WEIGHT)
    np.testing.assert_array_equal(whole(source.arrays["bias"]), BIAS)
    np.testing.assert_array_equal(source.arrays["weight"].read(2, 8), WEIGHT[2:8])


@pytest.mark.parametrize(
    ("name", "loss"), [("fc_1", "softmax"), ("final_fc_w_0", "arcface")]
)
def test_a_head_that_was_not_split(tmp_path, name, loss):
    write(tmp_path, "fc_0.w_0", np.ones((4, SIZE), np.float32))
    write(tmp_path, "fc_0.b_0", np.ones(SIZE, np.float32))
    write(tmp_path, f"{name}.w_0", np.ascontiguousarray(WEIGHT.T))
    if loss == "softmax":
        write(tmp_path, f"{name}.b_0", BIAS)
    write_meta(tmp_path)
    source = importers.read(str(tmp_path))
    assert set(source.backbone) == {"fc_0.w_0", "fc_0.b_0"}
    assert (source.loss, source.ranks) == (loss, 1)
    assert ("bias" in source.arrays) == (loss == "softmax")
    np.testing.assert_array_equal(whole(source.arrays["weight"]), WEIGHT)


@pytest.mark.parametrize("rank", [0, RANKS - 1])
def test_a_missing_rank_is_named(folder, rank):
    name = f"dist@arcface@rank@{rank:05d}.w_0"
    (folder / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"does not contain {name}:"):
        importers.read(str(folder))


# 34 bytes became gigabytes: the name is no format.
def test_braces_in_a_files_name_are_not_filled(folder):
    next(folder.glob("dist@*")).rename(folder / "dist@{0:>2500000000}@rank@00001.w_0")
    for other in folder.glob("dist@arc*"):
        other.unlink()
    with pytest.raises(FileNotFoundError, match="0:>2500000000}@rank@00000"):
        importers.read(str(folder))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_classes": 12},
        {"emb_dim": 4},
        {"pretrain_nranks": 3, "num_classes": 9},
        {"pretrain_nranks": "many"},
        {"pretrain_nranks": float("inf")},
    ],
)
def test_files_that_are_not_what_meta_json_says(folder, changes):
    write_meta(folder, **changes)
    with pytest.raises(ValueError, match="meta.json"):
        importers.read(str(folder))


def test_a_bias_of_other_classes_than_the_weights_is_noticed(folder):
    write_head(folder, bias=True)
    write(folder, f"dist@arcface@rank@{RANKS - 1:05d}.b_0", BIAS[-1:])
    (folder / "meta.json").unlink()
    with pytest.raises(ValueError, match="same number of classes.*'bias': 10"):
        importers.read(str(folder))


def test_two_checkpoints_in_one_folder_are_refused(folder):
    write(folder, "conv2d_0.w_0.pdparam", np.ones((1, 1, 1, 1), np.float32))
    with pytest.raises(ValueError, match="conv2d_0.w_0 is both in"):
        importers.read(str(folder))


def test_what_is_no_checkpoint(tmp_path):
    with pytest.raises(FileNotFoundError, match="neither a folder nor a file"):
        importers.read(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="files=none"):
        importers.read(str(tmp_path))
    with pytest.raises(ValueError, match="must be a local path"):
        importers.read("hdfs://server/run")
