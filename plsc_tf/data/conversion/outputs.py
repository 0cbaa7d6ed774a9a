"""The formats of shards: lines of base64 text, or TFRecord examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plsc_tf.data.records import base64_text, tfrecord

# First bytes of the formats that `plsc_tf.data.images.decode` reads.
_BEGINNINGS = {
    b"\xff\xd8\xff": b"jpeg",
    b"\x89PNG\r\n\x1a\n": b"png",
    b"GIF8": b"gif",
}


class Base64Output:
    """`base64<TAB>label` lines in base64_rank_0, ..., listed in file_list.txt (PLSC).

    Attributes:
        layout: name of the format.
        lead: bytes of a record before its payload.
    """

    layout = "base64"
    lead = 0

    def shard_names(self, count: int) -> list[str]:
        """Returns the file names of the shards."""
        return [f"base64_rank_{number}" for number in range(count)]

    def other_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """Returns {name: content} of the files that go with the shards."""
        return {"file_list.txt": "".join(f"{name}\n" for name in names).encode()}

    def pack(
        self, images: Sequence[bytes], labels: Sequence[int], where: Callable
    ) -> tuple[list[bytes], list[int]]:
        """Returns records, and the bytes of their payloads.

        Args:
            images: encoded images.
            labels: one for each.
            where: names an image by its number in the list, for errors.
        """
        del where
        records = list(map(base64_text.encode_line, images, labels))
        return records, [4 * ((len(image) + 2) // 3) for image in images]


class RecordOutput:
    """TFRecord files of examples with FastNN's keys; attributes as `Base64Output`."""

    layout = "tfrecord"
    lead = tfrecord.HEADER

    def shard_names(self, count: int) -> list[str]:
        """See `Base64Output.shard_names`."""
        return [f"part-{number:05d}-of-{count:05d}.tfrecord" for number in range(count)]

    def other_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """See `Base64Output.other_files`: none."""
        del names
        return {}

    def pack(
        self, images: Sequence[bytes], labels: Sequence[int], where: Callable
    ) -> tuple[list[bytes], list[int]]:
        """See `Base64Output.pack`.

        Raises:
            ValueError: an image of another format than TensorFlow decodes.
        """
        kinds = [_format_of(image, k, where) for k, image in enumerate(images)]
        return self.frame(list(map(tfrecord.encode_example, images, kinds, labels)))

    def frame(self, payloads: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
        """Returns records of payloads, and the bytes of these."""
        return list(map(tfrecord.frame, payloads)), list(map(len, payloads))


OUTPUTS = {"base64": Base64Output(), "tfrecord": RecordOutput()}


def _format_of(image, number, where):
    for beginning, name in _BEGINNINGS.items():
        if image.startswith(beginning):
            return name
    raise ValueError(
        f"{where(number)} is not a JPEG, PNG or GIF file: it begins with "
        f"{bytes(image[:8])!r}. `python -m plsc_tf.check` lists all such files."
    )
