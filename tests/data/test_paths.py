"""Packed paths and patterns of files."""

import pytest
import tensorflow as tf

from plsc_tf.data import paths


def test_table_gives_back_every_path():
    names = ["a.png", "", "ä/b c.jpg", "x" * 500]
    table = paths.PathTable("/base/", (name.encode() for name in names))
    assert len(table) == 4
    assert [table[k] for k in range(4)] == [f"/base/{name}" for name in names]
    assert paths.PathTable("", [b"a"])[0] == "a"


def test_expand_finds_files_below_the_folder_or_as_they_are(tmp_path):
    for name in ("part-1", "part-0", "other"):
        (tmp_path / name).write_bytes(b"")
    folder = str(tmp_path)
    assert paths.expand(["part-*"], folder) == [f"{folder}/part-0", f"{folder}/part-1"]
    assert paths.expand([f"{folder}/other"], "") == [f"{folder}/other"]
    with pytest.raises(FileNotFoundError, match="No file matches 'par' in train_files"):
        paths.expand(["par"], folder)
    with pytest.raises(ValueError, match="must list each file once"):
        paths.expand(["part-*", "part-0"], folder)


def test_folder_that_is_none(tmp_path):
    tf.io.gfile.makedirs("ram://sets/photos")
    with pytest.raises(FileNotFoundError, match="mean 'ram://sets/photos'"):
        paths.require_folder("ram://sets/fotos/")
    with pytest.raises(ValueError, match="dataset_dir must be set"):
        paths.require_folder("")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError, match="which is a file"):
        paths.require_folder(str(tmp_path / "file"))
