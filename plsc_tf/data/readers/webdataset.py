"""Reads WebDataset's shards: tar files of <key>.jpg (or .png, .gif) and <key>.cls.

Shards are not unpacked: the headers of their members say where the images are.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

from plsc_tf.data.paths import IMAGE_ENDINGS
from plsc_tf.data.readers.packed import RandomAccessFile, find_packed, packed_source
from plsc_tf.data.source import IndexedSource
from plsc_tf.requirements import require
from plsc_tf.storage.paths import leads_outside

_LABEL = re.compile(rb"\s*\d{1,18}\s*")
_ADVICE = "Sort the members, as tar --sort=name does"
# Most bytes of a member, of facts about it, and of a label.
_LONGEST, _LONGEST_FACTS, _LONGEST_LABEL = 3 << 24, 1 << 13, 99
# Most zeros at the end of a shard.
_MOST_ZEROS = 1 << 21
# From POSIX.1-2001 and GNU tar's manual: bytes of a header, its numbers, the mark of
# those with a field for the folder, and kinds of members. Links include devices.
_BLOCK, _LENGTH, _CHECKSUM, _USTAR = 512, slice(124, 136), slice(148, 156), b"ustar\0"
_FILES, _LINKS = b"0\0", b"12346"
# How members of two more kinds name the next one.
_NAMES = {b"x": rb"^\d{1,9} path=(.*)$", b"L": rb"\A([^\0]*)"}


def webdataset(shards: Sequence[str], **numbers: int | None) -> IndexedSource:
    """Opens shards for random access; reads the headers and the labels.

    Args:
        shards: paths of the files, on any store.
        **numbers: num_classes and labels_offset of `packed_source`.

    Raises:
        ValueError: a shard is damaged, or an image has no label.
    """
    # The converter writes no index for a tar file, whose labels other programs read.
    packed, labels = find_packed("webdataset", shards, find_samples, indexed=False)
    return packed_source("webdataset", packed, labels=labels, **numbers)


def find_samples(path: str) -> Iterator[tuple[int, int, int]]:
    """Yields the position, length and label of each of a shard's images.

    Successive members are one sample if their names agree up to the first dot.

    Raises:
        ValueError: the shard is damaged, or an image has no label.
    """
    file = RandomAccessFile(path)
    for key, members in itertools.groupby(_members(file), _key):
        images, labels = [], []
        for name, *place in members:
            ending = name[len(key) :].lower()
            if ending in IMAGE_ENDINGS:
                images.append(place)
            elif ending == ".cls":
                short = place[1] <= _LONGEST_LABEL
                labels.append(file.read(*place) if short else b"(too long)")
        good = len(images) == len(labels) <= 1 and all(map(_LABEL.fullmatch, labels))
        rule = f"{path}: {key!r} must have one image (.jpg, .png, .gif) and next to it "
        rule += "a label (.cls), a whole number"
        require(good, rule, _ADVICE, images=len(images), labels=b" ".join(labels)[:30])
        for place, label in zip(images, labels, strict=True):
            yield *place, int(label)


def _key(member):
    folder, slash, name = member[0].rpartition("/")
    return folder + slash + name.partition(".")[0]


def _members(file: RandomAccessFile) -> Iterator[tuple[str, int, int]]:
    """Yields (name, position, length) of each file in a tar.

    tarfile takes several times as long, and a kilobyte for each member.
    """
    position, long_name = 0, b""
    while (header := file.read(position, _BLOCK)) != bytes(_BLOCK):
        place, kind = f"{file.path}, byte {position}", header[156:157]
        try:
            numbers = (header[field].strip(b"\0 ") for field in (_LENGTH, _CHECKSUM))
            length, checksum = (int(number, 8) for number in numbers)
        except ValueError:
            length = checksum = -1
        good = checksum == sum(header) - sum(header[_CHECKSUM]) + 8 * ord(" ")
        rule = f"{place}: expected a header of an uncompressed tar file"
        require(good, rule, "Copy or write it again")
        begin = position + _BLOCK
        position = begin + length + -length % _BLOCK
        rule = f"{place}: expected a member of at most {_LONGEST:,} bytes, which ends "
        fits = 0 <= length <= _LONGEST and position <= file.size
        require(fits, f"{rule}before byte {file.size}", "Copy it again", bytes=length)
        if kind in _NAMES:
            facts = file.read(begin, min(length, _LONGEST_FACTS))
            found = re.search(_NAMES[kind], facts, re.MULTILINE)
            long_name = found[1] if found else b""
            continue
        folder = header[345:500].rstrip(b"\0") if header[257:263] == _USTAR else b""
        names = filter(None, (folder, header[:100].partition(b"\0")[0]))
        name = (long_name or b"/".join(names)).decode(errors="replace")
        long_name = b""
        good = not leads_outside(name) and kind not in _LINKS
        rule = f"{place}: expected a file within the archive, no link or name outside"
        require(good, rule, "Write it again without this member", name=repr(name))
        if kind in _FILES:
            yield name, begin, length
    rest = file.read(position, _MOST_ZEROS + 1)
    good = len(rest) <= _MOST_ZEROS and not rest.strip(b"\0")
    rule = f"{file.path}, byte {position}: expected only zeros, to the end of the tar"
    require(good, rule, "It has a hole, or is several files. Copy it again")
