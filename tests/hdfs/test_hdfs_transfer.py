"""Folders to HDFS and back: resumed, verified, and no password anywhere."""

import hashlib
import json

import pytest
from hdfs_driver import RemoteCallError


def make_run(folder):
    """A run's folder with one checkpoint, as `train` leaves it."""
    content = {"rows/a.npy": b"a" * 100_000, "backbone.npz": b"b" * 50_000}
    manifest = {"files": {}}
    for name, text in content.items():
        path = folder / "0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
        entry = {"bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        manifest["files"][name] = entry
    (folder / "0/manifest.json").write_text(json.dumps(manifest))
    (folder / "results.json").write_text("{}")
    return {
        str(path.relative_to(folder)): [
            path.stat().st_size,
            hashlib.sha256(path.read_bytes()).hexdigest(),
        ]
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_upload_resumes_and_download_gives_the_same(
    driver, folder, tmp_path, seen_by_another_client
):
    run = tmp_path / "run"
    expected = make_run(run)
    driver.call("hdfs_checks:write", f"{folder}/results.json", "{}")
    driver.call("hdfs_checks:write", f"{folder}/0/backbone.npz.plsc-part", "half")
    assert driver.call("hdfs_checks:upload", str(run), folder)[:2] == [3, 1]
    assert seen_by_another_client(folder) == expected
    assert driver.call("hdfs_checks:upload", str(run), folder) == [0, 4, 0]
    back = tmp_path / "back"
    assert driver.call("hdfs_checks:download", folder, str(back))[:2] == [4, 0]
    for name in expected:
        assert (back / name).read_bytes() == (run / name).read_bytes()


def test_a_damaged_file_on_the_store_is_found_and_left(
    driver, folder, tmp_path, written_by_another_client
):
    run = tmp_path / "run"
    make_run(run)
    driver.call("hdfs_checks:upload", str(run), folder)
    written_by_another_client(f"{folder}/0/backbone.npz", "c" * 50_000)
    with pytest.raises(RemoteCallError, match=r"0/backbone.npz \(same size, other"):
        driver.call("hdfs_checks:upload", str(run), folder)
    with pytest.raises(RemoteCallError, match="backbone.npz is damaged: .*SHA-256"):
        driver.call("hdfs_checks:download", folder, str(tmp_path / "back"))
    # Without its manifest nothing takes it for a checkpoint.
    assert not (tmp_path / "back/0/backbone.npz").exists()
    assert not (tmp_path / "back/0/manifest.json").exists()


def test_plscs_options_download_before_and_upload_after(
    driver, hdfs, folder, tmp_path, seen_by_another_client
):
    make_run(tmp_path / "earlier")
    path = "/" + folder.split("/", 3)[3]
    driver.call("hdfs_checks:upload", str(tmp_path / "earlier"), f"{folder}/weights")
    run = tmp_path / "run"
    expected = make_run(run)
    options = {
        "fs_name": hdfs.uri,
        "fs_ugi": "someone,PASSWORD-TO-HIDE",
        "fs_checkpoint_dir": f"{path}/weights",
        "fs_dir_for_save": f"{path}/saved",
        "checkpoint_dir": str(tmp_path / "start"),
        "model_save_dir": str(run),
    }
    assert driver.call("hdfs_checks:plsc_run", options) == [4, 4]
    assert (tmp_path / "start/0/manifest.json").exists()
    assert seen_by_another_client(f"{folder}/saved") == expected
    # A resumed run's own files are written anew; its checkpoints never.
    (run / "results.json").write_text('{"steps": 2}')
    assert driver.call("hdfs_checks:plsc_run", options) == [0, 1]
    log = driver.log.read_text()
    assert "Hadoop's user is trainer, of HADOOP_USER_NAME" in log
    assert "The password of fs_ugi is not sent" in log
    assert "PASSWORD-TO-HIDE" not in log
