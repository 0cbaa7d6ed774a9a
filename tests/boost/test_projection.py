"""Projections on disk, and every error before a training run begins."""

import json
import resource
import shutil

import numpy as np
import pytest

import plsc_tf
from plsc_tf.boost import projection, snapshots, trajectory


@pytest.fixture
def whole(make_model):
    return trajectory.layout_of(make_model(), "backbone")


def test_the_file_is_plain_numpy(projections, whole):
    path = projections["backbone"]
    matrix = np.load(path)
    assert matrix.dtype == np.float32 and matrix.shape == (5, whole.size)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(5), atol=1e-5)
    np.testing.assert_array_equal(projection.read(path), matrix)
    described = json.loads(open(f"{path}.json").read())
    assert described["weights"] == whole.describe()
    assert len(described["snapshots"]) == 9
    assert sum(described["explained_variance"]) == pytest.approx(1)
    assert "<svg" in open(path.replace(".npy", ".svg")).read()


def test_it_is_the_same_when_made_again(projections, whole, folder, tmp_path):
    path = str(tmp_path / "again.npy")
    projection.make(path, trajectory.open_folder(folder, whole, 5), whole, 5)
    names = {place.name for place in tmp_path.iterdir()}
    assert names == {"again.npy", "again.npy.json", "again.svg"}
    np.testing.assert_array_equal(np.load(path), np.load(projections["backbone"]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_matrix_from_elsewhere_is_taken(whole, tmp_path, dtype):
    rng = np.random.default_rng(3)
    matrix = np.linalg.qr(rng.standard_normal((whole.size, 3)))[0].T.astype(dtype)
    path = str(tmp_path / "own.npy")
    np.save(path, np.ascontiguousarray(matrix))
    projection.check(path, whole, 3)
    np.testing.assert_array_equal(projection.read(path), matrix)


def test_wrong_matrices_are_refused(whole, tmp_path):
    path, size = str(tmp_path / "wrong.npy"), whole.size
    with pytest.raises(FileNotFoundError, match="pca_mat_path"):
        projection.read(path)
    with pytest.raises(OSError, match="is not a file, but a FIFO, device or folder"):
        projection.read(str(tmp_path))
    for matrix, message in (
        (np.eye(3, size - 1), rf"\[3, {size}\]. Received: shape=\[3, {size - 1}"),
        (1.01 * np.eye(3, size), r"orthonormal rows.*deviation=0\.02"),
        (np.full((3, size), np.nan), "deviation=nan"),
    ):
        np.save(path, matrix.astype(np.float32))
        with pytest.raises(ValueError, match=message):
            projection.check(path, whole, 3)
    np.save(path, np.eye(3, size, dtype=np.int32))
    with pytest.raises(ValueError, match="matrix of floats"):
        projection.read(path)
    np.save(path, np.eye(3, size, dtype=np.float32))
    for damaged in ((tmp_path / "wrong.npy").read_bytes()[:1000], b"no numpy file"):
        (tmp_path / "wrong.npy").write_bytes(damaged)
        with pytest.raises(ValueError, match="wrong.npy is not a .npy file of numbers"):
            projection.read(path)


def test_too_few_snapshots(folder, whole):
    with pytest.raises(ValueError, match=r"n_component=9 .*at least 10 .* with 9"):
        trajectory.open_folder(folder, whole, 9)
    with pytest.raises(NotADirectoryError, match="Set it to stage 1's snapshot_dir"):
        trajectory.open_folder(f"{folder}/none", whole, 5)


def test_a_damaged_snapshot(folder, whole, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    with open(copy / "step_00000002" / "backbone.weights.h5", "r+b") as file:
        file.seek(-8, 2)
        file.write(b"damaged!")
    with pytest.raises(ValueError, match="step_00000002 is damaged"):
        trajectory.open_folder(str(copy), whole, 5)


def test_a_snapshot_that_is_not_finite(make_model, folder, whole, tmp_path):
    copy = str(shutil.copytree(folder, tmp_path / "copy"))
    model = make_model()
    model.backbone.trainable_variables[2].assign(np.full(8, np.nan))
    model.trainer.position.global_step = 10
    plsc_tf.training.state.save(f"{copy}/step_00000010", model, {}, weights_only=True)
    found = trajectory.open_folder(copy, whole, 5)
    with pytest.raises(ValueError, match="step_00000010 contains NaN.*gamma"):
        projection.make(str(tmp_path / "p.npy"), found, whole, 5)
    assert not list(tmp_path.glob("*.npy*"))


def test_a_file_system_that_takes_no_more(folder, whole, tmp_path):
    found = trajectory.open_folder(folder, whole, 5)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel's own refusal (EFBIG), as of a full disk (ENOSPC).
    resource.setrlimit(resource.RLIMIT_FSIZE, (20 * whole.size - 1, limits[1]))
    try:
        with pytest.raises(OSError, match=r"needs [\d,]+ bytes .* lower n_component"):
            projection.make(str(tmp_path / "pca_mat.npy"), found, whole, 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_another_store_than_the_local_disk(make_model, pictures, whole, gfile_root):
    model = make_model(rate=0.01)
    keep = snapshots.Snapshots(f"{gfile_root}/snapshots", every_n_steps=1)
    model.fit(*pictures, batch_size=6, callbacks=[keep], shuffle=False, verbose=0)
    found = trajectory.open_folder(f"{gfile_root}/snapshots", whole, 2)
    assert [int(one.path[-1]) for one in found] == [1, 2, 3, 4]
    projection.make(f"{gfile_root}/run/pca_mat.npy", found, whole, 2)
    projection.check(f"{gfile_root}/run/pca_mat.npy", whole, 2)
