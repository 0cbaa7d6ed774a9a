"""WebDataset's shards, written by Python's tarfile; see also `test_containers`."""

import gzip
import io
import os
import tarfile

import numpy as np
import pytest

from plsc_tf.data.readers.webdataset import webdataset
from plsc_tf.data.sampling import FILE_ORDER
from plsc_tf.jobs.builders.data import load_batches
from plsc_tf.options.settings import Settings
from tests.data.conftest import opened
from tests.data.test_containers import IMAGES, write_shards


def test_shards_are_chosen_by_split_or_pattern(tmp_path):
    write_shards(tmp_path)
    source = opened("webdataset", tmp_path)
    assert source.describe(4) == f"record 0 of {tmp_path}/train-1.tar"
    assert opened("webdataset", tmp_path, split="test").labels.tolist() == [2]
    chosen = (f"{tmp_path}/train-*.tar",)
    settings = Settings().replace(dataset_name="webdataset", train_files=chosen)
    assert load_batches(settings, 7).num_classes == 3


def test_labels_are_those_of_the_shards(tmp_path):
    # A forged index beside a shard could give its images other labels.
    write_shards(tmp_path)
    shard = (tmp_path / "train-0.tar").rename(tmp_path / "shard")
    labels = webdataset([str(shard)]).labels.tolist()
    np.save(f"{shard}.index.npy", np.array([[0, shard.stat().st_size, 1]]))
    assert webdataset([str(shard)]).labels.tolist() == labels


def write(path, members, **options):
    """Writes (name, content or type of a link) of each member."""
    with tarfile.open(path, "w", **options) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.linkname, content = "a.png", content.encode()
                member.type, content = content, b""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


# Of a sparse shard that took 0.7 MB, 5 GB were read.
def test_large_records_are_read_in_small_blocks(tmp_path):
    image = IMAGES[0] + bytes(40 << 20)
    names = "a.png", "a.cls", "b.png", "b.cls"
    write(tmp_path / "train.tar", zip(names, [image, b"0"] * 2, strict=True))
    blocks = opened("webdataset", tmp_path).blocks(100, FILE_ORDER)
    assert [len(one["index"]) for one in blocks] == [1, 1]


FORMS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


@pytest.mark.parametrize("form", FORMS)
def test_long_names_folders_and_other_files_of_every_kind_of_tar(tmp_path, form):
    folder = f"{'deep/' * 30}José" if form != tarfile.USTAR_FORMAT else "deep/" * 22
    members = [("README.txt", b"faces"), (folder, tarfile.DIRTYPE.decode())]
    for number in range(2):
        key = f"{folder}/{number}"
        members += [(f"{key}.seg.png", b"mask"), (f"{key}.PNG", IMAGES[number])]
        members += [(f"{key}.cls", b"%d\n" % number)]
    write(tmp_path / "train.tar", members, format=form)
    source = opened("webdataset", tmp_path)
    assert source.labels.tolist() == [0, 1]
    assert [record.image for record in source.records()] == IMAGES[:2]


GOOD = [("a.png", IMAGES[0]), ("a.cls", b"0"), ("b.png", IMAGES[1]), ("b.cls", b"2")]


def changed(folder, change):
    write(folder / "train.tar", GOOD)
    data = bytearray((folder / "train.tar").read_bytes())
    (folder / "train.tar").write_bytes(change(data))


def forged(size):
    """Changes the size in the first header, and its checksum."""

    def change(data):
        data[124:136] = size
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data[:512])
        return data

    return lambda folder: changed(folder, change)


def members(**extra):
    more = [(name.replace("_", "."), content) for name, content in extra.items()]
    return lambda folder: write(folder / "train.tar", [*GOOD, *more])


ONE = "must have one image .* and next to it a label"
OUT = "no link or name outside"
LINK, HARD, DEVICE = (kind.decode() for kind in (b"2", b"1", b"3"))
DAMAGES = {
    "compressed": (lambda f: changed(f, gzip.compress), "byte 0: expected a header"),
    "cut": (lambda f: changed(f, lambda d: d[:1800]), "byte 1024: expected a member"),
    "cut between": (
        lambda f: changed(f, lambda d: d[:1024]),
        "byte 1024: expected a h",
    ),
    "a flipped bit": (
        lambda f: changed(f, lambda d: d[:1030] + b"?" + d[1031:]),
        "byte 1024: expected a header",
    ),
    # Of a copy that is not complete, and of two shards in one file.
    "a hole": (
        lambda f: changed(f, lambda d: d[:1024] + bytes(512) + d[1536:]),
        "byte 1024: expected only zeros",
    ),
    "two in one": (lambda f: changed(f, lambda d: d + d), "expected only zeros"),
    "a huge size": (forged(b"77777777777\0"), "byte 0: expected a member of at most"),
    "a negative size": (forged(b"-0000000777\0"), "byte 0: expected a member of at m"),
    "no samples": (lambda f: write(f / "train.tar", []), "holds no records"),
    "no label": (members(c_png=b"p"), f"'c' {ONE}.*images=1, labels=.."),
    "no image": (members(c_cls=b"1"), f"'c' {ONE}.*images=0"),
    "two images": (members(c_png=b"p", c_gif=b"p", c_cls=b"1"), "images=2"),
    "a name as label": (members(c_png=b"p", c_cls=b"cat"), f"'c' {ONE}.*cat"),
    # Of a sparse file that took 244 KB, 6 GB were read.
    "a long label": (members(c_png=b"p", c_cls=b"1" + bytes(100)), f"'c' {ONE}.*long"),
    "apart": (members(c_png=b"p", d_png=b"p", c_cls=b"1"), f"'c' {ONE}"),
    "a symbolic link": (members(c_png=LINK), OUT),
    "a hard link": (members(c_png=HARD), OUT),
    "a device": (members(c_png=DEVICE), OUT),
    "a name outside": (members(**{"a/../../c_png": b"p"}), OUT),
    "a whole path": (members(**{"/etc/c_png": b"p"}), OUT),
    "a FIFO": (lambda f: os.mkfifo(f / "train.tar"), "train.tar is not a file"),
    "no shard": (lambda f: None, r"has no train\*.tar"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_shards_are_named(tmp_path, damage):
    make, message = DAMAGES[damage]
    make(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        opened("webdataset", tmp_path)
