"""One checkpoint folder, and the folders of a run."""

import json

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.checkpoints import folder
from plsc_tf.parallel.rows import ReplicatedRows, ShardedRows

WHOLE = np.arange(14, dtype=np.float32).reshape(7, 2)


def rows(replicas, start=WHOLE):
    strategy = plsc_tf.strategy(replicas)
    return ShardedRows.create(strategy, lambda a, b: start[a:b], 7, "w")


def save(path, step=5):
    variables = {"backbone/0000": keras.Variable(np.float32([1, 2]), name="kernel")}
    folder.save(
        str(path),
        variables=variables,
        arrays={"weight": rows(3)},
        state={"global_step": step},
    )


def restore(path, replicas, shape=(2,)):
    variable = keras.Variable(np.zeros(shape, np.float32))
    array = rows(replicas, np.zeros_like(WHOLE))
    state = folder.restore(
        str(path), variables={"backbone/0000": variable}, arrays={"weight": array}
    )
    return variable.numpy(), array.read(0, 7), state


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_what_three_replicas_saved_loads_on_any_number(tmp_path, replicas):
    save(tmp_path / "0")
    variable, array, state = restore(tmp_path / "0", replicas)
    np.testing.assert_array_equal(variable, [1, 2])
    np.testing.assert_array_equal(array, WHOLE)
    assert state == {"global_step": 5}


def test_a_sharded_head_loads_into_a_replicated_one(tmp_path):
    save(tmp_path / "0")
    array = ReplicatedRows(keras.Variable(np.zeros_like(WHOLE)))
    folder.restore(str(tmp_path / "0"), variables={}, arrays={"weight": array})
    np.testing.assert_array_equal(array.read(0, 7), WHOLE)


def test_large_arrays_are_cut_into_files(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "MAX_FILE_BYTES", 3 * 8)  # three rows of two float32
    save(tmp_path / "0")
    names = sorted(p.name for p in (tmp_path / "0" / "rows").iterdir())
    assert names == [
        "weight-0000000000-0000000003.npy",
        "weight-0000000003-0000000006.npy",
        "weight-0000000006-0000000007.npy",
    ]
    _, array, _ = restore(tmp_path / "0", 2)
    np.testing.assert_array_equal(array, WHOLE)


def test_nothing_is_overwritten(tmp_path):
    save(tmp_path / "0")
    before = (tmp_path / "0" / folder.MANIFEST).read_bytes()
    with pytest.raises(FileExistsError, match="not overwritten"):
        save(tmp_path / "0", step=6)
    assert (tmp_path / "0" / folder.MANIFEST).read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["0"]


def test_damage_is_noticed_before_anything_is_loaded(tmp_path):
    save(tmp_path / "0")
    file = next((tmp_path / "0" / "rows").iterdir())
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="SHA-256"):
        restore(tmp_path / "0", 2)
    file.unlink()
    with pytest.raises(ValueError, match="is missing"):
        restore(tmp_path / "0", 2)


def test_another_shape_is_named(tmp_path):
    save(tmp_path / "0")
    with pytest.raises(
        ValueError, match=r"backbone/0000: \[2\] in the checkpoint, \[3"
    ):
        restore(tmp_path / "0", 2, shape=(3,))


def test_unfinished_folders_are_no_checkpoints(tmp_path):
    save(tmp_path / "3", step=40)
    save(tmp_path / "step_00000050", step=50)
    (tmp_path / "9").mkdir()  # no manifest: never completed
    (tmp_path / "4.writing-0123abcd").mkdir()
    found = folder.find_all(str(tmp_path))
    assert [step for step, _ in found] == [40, 50]
    assert folder.resolve(str(tmp_path)) == found[1][1]
    assert folder.resolve(str(tmp_path / "3")) == str(tmp_path / "3")
    with pytest.raises(FileNotFoundError, match="holds no checkpoint"):
        folder.resolve(str(tmp_path / "9"))


def test_another_format_is_refused(tmp_path):
    save(tmp_path / "0")
    manifest = tmp_path / "0" / folder.MANIFEST
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        restore(tmp_path / "0", 1)


def test_prune_keeps_the_newest(tmp_path):
    for epoch in range(4):
        save(tmp_path / str(epoch), step=10 * epoch)
    folder.prune(str(tmp_path), keep=0)
    assert len(folder.find_all(str(tmp_path))) == 4
    folder.prune(str(tmp_path), keep=2)
    assert [step for step, _ in folder.find_all(str(tmp_path))] == [20, 30]
