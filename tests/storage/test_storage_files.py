"""The operations on local paths, and through TensorFlow's file systems."""

import contextlib
import errno
import os
from hashlib import sha256

import numpy as np
import pytest
from blake3 import blake3

from plsc_tf.parallel.launch.logs import open_logs
from plsc_tf.storage import files, local
from plsc_tf.storage.errors import StorageError
from tests import programs, small_disk

CONTENT = bytes(range(256)) * 40_000  # 10.24 MB: more than a chunk
# The tests here that also run on HDFS and S3.
EVERYWHERE = """round_trip a_file_is_read_in_chunks_and_in_parts what_is_absent_is_named
    files_are_no_folders_and_folders_no_files rename_overwrites_nothing""".split()


def test_round_trip(root):
    path = files.join(root, "a/b")
    assert not files.exists(path)
    assert not files.is_dir(path)
    files.make_dirs(path)
    files.make_dirs(path)
    assert files.is_dir(path)
    file = files.join(path, "large")
    entry = {"bytes": len(CONTENT), "blake3": blake3(CONTENT).hexdigest()}
    assert files.write(file, CONTENT) == entry
    assert files.write(files.join(path, "none"), b"")["bytes"] == 0
    assert files.exists(file)
    assert not files.is_dir(file)
    assert files.size(file) == len(CONTENT)
    assert files.read(file) == CONTENT
    assert files.read(files.join(path, "none")) == b""
    assert files.checksum(file) == entry
    assert files.checksum(file, "sha256")["sha256"] == sha256(CONTENT).hexdigest()
    assert files.list_dir(path) == ["large", "none"]
    files.rename(path, files.join(root, "a/c"))
    assert files.list_dir(files.join(root, "a")) == ["c"]
    files.remove(files.join(root, "a/c/none"))
    assert files.list_dir(files.join(root, "a/c")) == ["large"]
    files.remove_tree(files.join(root, "a"))
    assert not files.exists(files.join(root, "a"))


def test_a_file_is_read_in_chunks_and_in_parts(root):
    file = files.join(root, "file")
    files.write(file, CONTENT)
    chunks = list(files.open_read(file))
    assert [len(chunk) for chunk in chunks] == [8 << 20, len(CONTENT) - (8 << 20)]
    assert b"".join(chunks) == CONTENT
    assert files.read(file, 254, 258) == b"\xfe\xff\x00\x01"
    assert files.read(file, len(CONTENT)) == b""
    with pytest.raises(ValueError, match=f"within the {len(CONTENT)} bytes"):
        files.read(file, 5, len(CONTENT) + 1)


@pytest.mark.parametrize(
    "chunks",
    [
        b"abcd",
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        np.array([[0x6261], [0x6463]], "<u2"),
        lambda: [np.array([[0x6261], [0x6463]], "<u2"), np.zeros((0, 3))],
        lambda: iter([b"abc", b"d"]),
    ],
)
def test_content_may_be_any_buffers(root, chunks):
    file = files.join(root, "file")
    files.write(file, b"something longer that was there")
    assert files.write(file, chunks)["bytes"] == 4
    assert files.read(file) == b"abcd"


def test_what_is_absent_is_named(root):
    absent = files.join(root, "absent")
    for call in (
        lambda: files.read(absent),
        lambda: files.size(absent),
        lambda: files.list_dir(absent),
        lambda: files.remove(absent),
        lambda: files.remove_tree(absent),
        lambda: files.rename(absent, files.join(root, "new")),
        lambda: next(files.open_read(absent)),
    ):
        with pytest.raises(FileNotFoundError, match="absent"):
            call()


def test_files_are_no_folders_and_folders_no_files(root):
    folder, file = files.join(root, "folder"), files.join(root, "file")
    files.make_dirs(folder)
    files.write(file, b"x")
    for call in (files.list_dir, files.remove_tree):
        with pytest.raises(NotADirectoryError):
            call(file)
    for call in (files.read, files.size, files.remove):
        with pytest.raises(IsADirectoryError):
            call(folder)


def test_rename_overwrites_nothing(root):
    old, new = files.join(root, "old"), files.join(root, "new")
    files.write(old, b"old")
    files.write(new, b"new")
    with pytest.raises(FileExistsError):
        files.rename(old, new)
    assert (files.read(old), files.read(new)) == (b"old", b"new")
    with pytest.raises(FileNotFoundError):
        files.rename(old, files.join(root, "no_folder/new"))
    assert files.read(old) == b"old"


def test_a_file_that_appears_before_a_rename_is_kept(tmp_path):
    # Of two commands that end with the same output, one would replace the other's.
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    with pytest.raises(FileExistsError):
        local.rename(str(old), str(new), None)
    assert (old.read_bytes(), new.read_bytes()) == (b"old", b"new")


def test_other_names_of_a_file_keep_its_contents(tmp_path):
    # An archive can bring hard links to any file of who unpacks it.
    mine, link = tmp_path / "mine", tmp_path / "link"
    mine.write_bytes(b"mine")
    os.link(mine, link)
    with pytest.raises(ValueError, match="has other names"):
        open(link, "wb", opener=local.without_links)
    files.write(str(link), b"new")
    assert (mine.read_bytes(), link.read_bytes()) == (b"mine", b"new")


def test_a_full_disk_keeps_its_meaning_and_leaves_no_part(tmp_path):
    with small_disk.mounted(tmp_path, "64k"):
        with pytest.raises(OSError, match="No space left on device") as caught:
            files.write(tmp_path / "file", b"x" * 100_000)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(tmp_path / "file")
        assert not os.path.lexists(tmp_path / "file")


# In a folder of a group, another user could choose the file that is overwritten.
@pytest.mark.parametrize("name", ["report", "worker-0.log"])
def test_links_of_others_are_not_followed(tmp_path, name):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / name).symlink_to(tmp_path / "precious")
    files.replace(tmp_path / "report", b"new")
    with contextlib.suppress(OSError):
        open_logs(str(tmp_path), [0])[0].begin("attempt")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "report").read_bytes() == b"new"
    assert not (tmp_path / "report").is_symlink()


def test_what_cannot_be_looked_at_is_not_absent(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError) as caught:
        files.exists(loop)
    assert caught.value.errno == errno.ELOOP


def test_an_iterable_that_fails_leaves_no_part(root):
    def pieces():
        yield b"x"
        raise OSError(errno.EIO, "the source broke")

    with pytest.raises(OSError, match="the source broke"):
        files.write(files.join(root, "file"), pieces)
    assert files.list_dir(root) == []


def test_an_older_file_that_cannot_be_opened_stays(root):
    # A folder in its place cannot be opened, whoever tries.
    files.make_dirs(files.join(root, "file/below"))
    with pytest.raises(OSError):
        files.write(files.join(root, "file"), b"x", retry=files.Retry(tries=1))
    assert files.list_dir(files.join(root, "file")) == ["below"]


def test_which_renames_are_atomic():
    assert files.atomic_rename("/a/b")
    assert files.atomic_rename("file:///a/b")
    assert files.atomic_rename("hdfs://host:9000/a")
    assert not files.atomic_rename("gs://bucket/a")
    assert not files.atomic_rename("viewfs://cluster/a")


def test_a_scheme_that_nobody_has_is_an_error_that_lists_the_others():
    with pytest.raises(StorageError, match="no file system for nosuch://") as caught:
        files.prepare("nosuch://host/a")
    assert "gs" in str(caught.value) and "tensorflow-io" in str(caught.value)


def test_tensorflow_io_is_imported_only_where_it_is_needed(tmp_path):
    # TensorFlow 2.18 and later are installed without it.
    (tmp_path / "tensorflow_io.py").write_text("__version__ = '0'")
    code = (
        "import sys; from plsc_tf.storage import files\n"
        f"files.write({str(tmp_path / 'a')!r}, b'x')\n"
        "assert 'tensorflow' not in sys.modules\n"
        "files.make_dirs('ram://a/b')\n"
        "assert 'tensorflow_io' not in sys.modules\n"
        "files.prepare('s3://bucket/a')\n"
        "assert 'tensorflow_io' in sys.modules"
    )
    programs.run("-c", code, cwd=tmp_path)
