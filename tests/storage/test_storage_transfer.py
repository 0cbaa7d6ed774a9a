"""Copies of folders: whole, resumed, verified; nothing is overwritten."""

import hashlib
import json

import pytest
from blake3 import blake3

from plsc_tf import progress
from plsc_tf.storage import files, transfer
from plsc_tf.storage.errors import StorageError
from tests.folders import contents

CONTENT = {"rows/a.npy": b"a" * 1000, "backbone.npz": b"b" * 500}


@pytest.fixture(params=["sha256", "blake3"])
def run(tmp_path, request):
    """A run's folder: one checkpoint with a manifest, and a log."""
    folder = tmp_path / "run"
    for name, text in CONTENT.items():
        path = folder / "7" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    compute = {"sha256": hashlib.sha256, "blake3": blake3}[request.param]
    listed = {
        name: {"bytes": len(text), request.param: compute(text).hexdigest()}
        for name, text in CONTENT.items()
    }
    (folder / "7/manifest.json").write_text(json.dumps({"files": listed}))
    (folder / "log.txt").write_text("log")
    return folder


def test_a_copy_is_the_same_and_a_second_one_copies_nothing(run, tmp_path):
    target = tmp_path / "target"
    assert transfer.upload(run, target) == 4
    assert contents(target) == contents(run)
    assert transfer.upload(run, target) == 0


def test_a_copy_that_broke_off_goes_on(run, tmp_path):
    target = tmp_path / "target"
    (target / "7/rows").mkdir(parents=True)
    (target / "log.txt").write_text("log")
    (target / "7/rows/a.npy.plsc-part").write_bytes(b"aaa")
    assert transfer.download(str(run), str(target)) == 3
    assert contents(target) == contents(run)


def test_parts_and_skipped_names_are_not_copied(run, tmp_path):
    (run / "8.writing-1f").mkdir()
    (run / "8.writing-1f/rows.npy").touch()
    (run / "log.txt.plsc-part").touch()
    transfer.upload(run, tmp_path / "target", skip=("*.writing-*",))
    names = {"7/manifest.json", "log.txt", *(f"7/{name}" for name in CONTENT)}
    assert set(contents(tmp_path / "target")) == names


@pytest.mark.parametrize("text", [b"other", b"B" * 500])
def test_a_file_that_differs_is_named_and_left(run, tmp_path, text):
    target = tmp_path / "target"
    (target / "7").mkdir(parents=True)
    (target / "7/backbone.npz").write_bytes(text)
    with pytest.raises(FileExistsError, match="7/backbone.npz differs.*not overwri"):
        transfer.upload(run, target, replace_unlisted=True)
    assert (target / "7/backbone.npz").read_bytes() == text
    assert not (target / "7/manifest.json").exists()


def test_unlisted_files_are_replaced_on_request_only(run, tmp_path):
    transfer.upload(run, tmp_path / "target")
    (run / "log.txt").write_text("two")
    with pytest.raises(FileExistsError, match="log.txt differs"):
        transfer.upload(run, tmp_path / "target")
    assert transfer.upload(run, tmp_path / "target", replace_unlisted=True) == 1
    assert (tmp_path / "target/log.txt").read_text() == "two"


def test_a_damaged_source_is_not_copied(run, tmp_path):
    (run / "7/backbone.npz").write_bytes(b"B" * 500)
    with pytest.raises(StorageError, match="backbone.npz is damaged: .* checksum"):
        transfer.upload(run, tmp_path / "target")
    assert not (tmp_path / "target/7/backbone.npz").exists()
    assert not (tmp_path / "target/7/manifest.json").exists()


def test_checksums_of_two_kinds_are_an_error(run, tmp_path):
    content = json.loads((run / "7/manifest.json").read_text())
    content["files"]["rows/a.npy"] |= {"sha256": "0" * 64, "blake3": "0" * 64}
    (run / "7/manifest.json").write_text(json.dumps(content))
    with pytest.raises(StorageError, match="manifest.json is damaged: .*several kinds"):
        transfer.upload(run, tmp_path / "target")
    (run / "7/manifest.json").write_text("[" * 10**5)
    with pytest.raises(StorageError, match="manifest.json is damaged: .*recursion"):
        transfer.upload(run, tmp_path / "target")


@pytest.mark.parametrize(("text", "words"), [(None, "does not exist"), (b"b", "has 1")])
def test_a_source_that_its_manifest_disowns(run, tmp_path, text, words):
    (run / "7/backbone.npz").unlink()
    if text:
        (run / "7/backbone.npz").write_bytes(text)
    with pytest.raises(StorageError, match=f"says 500 bytes, but the file {words}"):
        transfer.upload(run, tmp_path / "target")
    assert not (tmp_path / "target").exists()


# A stranger's run could have a link to a private folder, whose copy would be uploaded.
def test_links_that_lead_out_are_not_copied(run, tmp_path):
    (run / "notes").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="must not lead out"):
        transfer.download(f"file://{run}", str(tmp_path / "copy"))
    with pytest.raises(ValueError, match="must not lead out"):
        transfer.upload(str(tmp_path / "other"), str(run))


def test_a_missing_source_is_an_error_and_makes_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        transfer.upload(tmp_path / "none", tmp_path / "target")
    assert not (tmp_path / "target").exists()


def test_other_stores_and_other_peoples_manifests(run, gfile_root):
    (run / "7/manifest.json").write_text('["not ours"]')
    target = f"{gfile_root}/target"
    assert transfer.upload(run, target) == 4
    assert files.read(f"{target}/7/rows/a.npy") == CONTENT["rows/a.npy"]
    assert transfer.upload(run, target) == 0


def test_progress_is_logged_with_rate_and_time_left(run, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.0)
    transfer.upload(run, tmp_path / "target")
    lines = [record.getMessage() for record in caplog.records]
    assert any("MB/s" in line and "ETA 0:0" in line for line in lines)
    assert "4 files copied" in lines[-1]
