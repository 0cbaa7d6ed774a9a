"""Formats of files that hold many images with labels, for the converter and checks."""

import dataclasses
from collections.abc import Callable, Iterator

from plsc_tf.data.readers import base64_text, tfrecord
from plsc_tf.requirements import require

# Leading bytes of the formats that `plsc_tf.data.images.decode` supports.
_BEGINNINGS = {b"\xff\xd8\xff": b"jpeg", b"\x89PNG\r\n\x1a\n": b"png", b"GIF8": b"gif"}


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of files with many records, each of which is an image and its label.

    Attributes:
        name: name of the format.
        unit: what messages call a record.
        first: number of a file's first record.
        read: function of (path, position, number) that yields (number, position of the
            next record, record) for each record from that position on.
        unpack: function of a record that returns (encoded image, label); raises
            ValueError if the record is damaged.
        find: function of a path, for `find_packed`, and the number of its columns.
        pack: function of (encoded image, label) that returns a record and the length of
            its payload; raises ValueError if the format cannot hold the image.
        header_bytes: number of bytes of a record before its payload.
        shard_name: format string for a shard's name, with the number of the shard and
            the number of shards.
        file_list: name of a file that lists the shards, or "" for no such file.
    """

    name: str
    unit: str
    first: int
    read: Callable[..., Iterator[tuple[int, int, bytes]]]
    unpack: Callable[[bytes], tuple[bytes, int]]
    find: tuple[Callable, int]
    pack: Callable[[bytes, int], tuple[bytes, int]]
    header_bytes: int
    shard_name: str
    file_list: str = ""


def _pack_line(image, label):
    return base64_text.encode_line(image, label), 4 * ((len(image) + 2) // 3)


def _pack_example(image, label):
    payload = tfrecord.encode_example(image, image_kind(image), label)
    return tfrecord.frame(payload), len(payload)


def image_kind(image: bytes) -> bytes:
    """Returns an image's format; a list could name a private file of its reader.

    Raises:
        ValueError: it is not a JPEG, PNG or GIF.
    """
    kinds = [_BEGINNINGS[begin] for begin in _BEGINNINGS if image.startswith(begin)]
    advice = "`python -m plsc_tf.check` lists all files that are not"
    require(kinds, "expected a JPEG, PNG or GIF file", advice, begins=image[:8])
    return kinds[0]


# PLSC's lines; written as `base64<TAB>label`.
BASE64 = Format(
    *("base64", "line", 1, base64_text.read_lines, base64_text.unpack),
    find=(base64_text.find_lines, 3),
    pack=_pack_line,
    header_bytes=0,
    shard_name="base64_rank_{0}",
    file_list="file_list.txt",
)
# Examples with FastNN's keys.
TFRECORD = Format(
    *("tfrecord", "record", 0, tfrecord.read_records, tfrecord.unpack),
    find=(tfrecord.find_records, 2),
    pack=_pack_example,
    header_bytes=tfrecord.HEADER,
    shard_name="part-{0:05d}-of-{1:05d}.tfrecord",
)
FORMATS = {form.name: form for form in (BASE64, TFRECORD)}
