"""Class folders in zip archives, written by Python's zipfile; see `test_containers`."""

import io
import os
import stat
import struct
import zipfile

import numpy as np
import pytest

from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listings import open_listing
from plsc_tf.data.readers.base64_text import encode_line
from plsc_tf.data.readers.layouts import DataRequest
from plsc_tf.jobs.embed.image_list import list_images
from plsc_tf.storage import files
from tests.data.conftest import encoded, opened

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
# Of three people; "deep/b" is a class of a nested folder.
NAMES = ["a/1.png", "a/3.png", "c/0.png", "c/4.png", "deep/b/2.PNG", "deep/b/5.png"]
IMAGES = [encoded(number // 2, number) for number in range(6)]


def zipped(*members, **changes):
    """Returns an archive of (name, content); all members have the `changes`."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, content in members or [("cat/1.png", IMAGES[0])]:
            member = zipfile.ZipInfo(name)
            for key, value in changes.items():
                setattr(member, key, value)
            file.writestr(member, content)
    return archive.getvalue()


@pytest.mark.parametrize("method", [STORED, DEFLATED])
def test_class_folders_with_other_files_and_without_entries(tmp_path, method):
    pairs = list(zip(NAMES, IMAGES, strict=True))[::-1]
    members = [(f"{part}/{n}", one) for part in ("train", "val") for n, one in pairs]
    others = ("README.txt", "faces"), ("train/a/.DS_Store", b"x")
    path = tmp_path / "photos.zip"
    path.write_bytes(zipped(*others, *members, compress_type=method))
    source, root = opened("folder", path), f"zip://{path}/train/"
    assert source.class_names == ("a", "c", "deep/b")
    assert [record.image for record in source.records()] == IMAGES
    assert [source.describe(k) for k in range(6)] == [root + name for name in NAMES]
    assert opened("folder", path, split="test").num_examples == 6
    listing = open_listing("folder", DataRequest(dataset_dir=str(path)))
    items = list(listing.items(Findings()))
    assert [item.label for item in items] == [0, 0, 1, 1, 2, 2]
    assert [files.read(os.fsdecode(item.path)) for item in items] == IMAGES
    names, paths, _ = list_images(str(path))  # for `embed` and `align`
    assert names[0] == "train/a/1.png" and files.read(paths[0]) == IMAGES[0]


def test_a_long_list_is_no_bomb(tmp_path):
    lines = (f"people/{k // 20:07d}/{k % 20:04d}.jpg {k // 20}\n" for k in range(20000))
    content = "".join(lines).encode()
    archive = zipped(("label.txt", content), compress_type=DEFLATED)
    assert len(content) > 9 * len(archive)
    (tmp_path / "faces.zip").write_bytes(archive)
    assert files.read(f"zip://{tmp_path}/faces.zip/label.txt") == content


# Reading it must not be taken for reading the directory.
def test_a_large_stored_member_is_read(tmp_path):
    content = bytes(3 << 20)
    (tmp_path / "a.zip").write_bytes(zipped(("train.rec", content)))
    assert files.read(f"zip://{tmp_path}/a.zip/train.rec") == content


def stating(count, size, packed):
    """An archive whose members have other sizes in its directory than in truth."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number in range(count):
            archive.writestr(f"cat/{number}.png", b"p")
        for member in archive.filelist:
            member.file_size, member.compress_size = size, packed
    return content.getvalue()


def listing(count):
    """An archive with a directory of as many bytes, of which all but one are forged."""
    place, end = PLAIN.index(b"PK\1\2"), PLAIN.index(b"PK\5\6")
    entries = PLAIN[place:end] * (count // (end - place))
    counts = struct.pack("<4HIIH", 0, 0, 1, 1, len(entries), place, 0)
    return PLAIN[:place] + entries + b"PK\5\6" + counts


PLAIN, SIZES = zipped(), [struct.pack("<I", size) for size in (1 << 20, 1000)]
BOMB = zipped(("cat/1.png", bytes(1 << 20)), compress_type=DEFLATED)
FLAGS = PLAIN.index(b"PK\1\2") + 8
DAMAGES = {
    "no archive": (b"no", "no zip archive"),
    "cut": (PLAIN[:-30], "no zip archive"),
    "a flipped bit": (PLAIN[:60] + b"?" + PLAIN[61:], "cat/1.png is damaged: Bad CRC"),
    "encrypted": (PLAIN[:FLAGS] + b"\1" + PLAIN[FLAGS + 1 :], "'cat/1.png' is encryp"),
    "bzip2": (zipped(compress_type=zipfile.ZIP_BZIP2), "neither stored nor deflated"),
    "swollen": (stating(3, 200 << 20, 20 << 20), "members unpack to more than"),
    "a long directory": (listing(2 << 20), "its directory has more than 1,74"),
    "deep": (zipped(("a/" * 300 + "1.png", b"p")), "has too long a name"),
    "a bomb": (BOMB, "'cat/1.png' unpacks to more than"),
    # It may unpack no more than it says.
    "a forged size": (BOMB.replace(*SIZES), "cat/1.png is damaged"),
    "a link": (zipped(external_attr=(stat.S_IFLNK | 0o777) << 16), "1.png' is a link"),
    "a name outside": (zipped(("../1.png", b"")), "'../1.png' leads outside"),
    "a whole path": (zipped(("/cat/1.png", b"")), "leads outside"),
    "a folder without a name": (zipped(("cat//1.png", b"")), "has '//'"),
    "no folders": (zipped(("1.png", b"p")), "but no class folders"),
    "no images": (zipped(("cat/1.txt", b"p")), "There are no images"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_archives_are_named(tmp_path, damage):
    content, message = DAMAGES[damage]
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(Exception, match=message):
        list(opened("folder", tmp_path / "a.zip").records())


def test_labels_that_were_corrected_in_an_archive_are_read(tmp_path):
    line, name, index = encode_line(IMAGES[0], 3), "base64_rank_0", io.BytesIO()
    np.save(index, np.array([[0, len(line) - 3, 2]]))
    members = {"file_list.txt": name, name: line, f"{name}.index.npy": index.getvalue()}
    for minutes, label in ((0, 1, 0), 3), ((0, 1, 2), 2):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            for minute, member in zip(minutes, members, strict=True):
                member = zipfile.ZipInfo(member, (2026, 1, 1, 0, minute, 0))
                archive.writestr(member, members[member.filename])
        assert opened("base64_text", tmp_path / "a.zip").labels.tolist() == [label]


def test_addresses_lead_to_archives(tmp_path):
    with pytest.raises(ValueError, match="Expected zip://<archive>.zip/<name>"):
        files.exists("zip://photos/1.jpg")
    with pytest.raises(FileNotFoundError):
        files.exists("zip://missing.zip/1.jpg")
    os.mkfifo(tmp_path / "a.zip")
    with pytest.raises(ValueError, match="not a file, but a FIFO"):
        files.exists(f"zip://{tmp_path}/a.zip/1.jpg")
    with pytest.raises(ValueError, match="only read"):
        files.write("zip://a.zip/1.jpg", b"")
