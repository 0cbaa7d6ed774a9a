"""What shards are made of: lines of base64 text, or TFRecord examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plsc_tf.data.records import base64_text, tfrecord

# What files of the formats that `plsc_tf.data.images.decode` reads begin with.
_BEGINNINGS = {
    b"\xff\xd8\xff": b"jpeg",
    b"\x89PNG\r\n\x1a\n": b"png",
    b"GIF8": b"gif",
}


class Base64Output:
    """`base64<TAB>label` lines in base64_rank_0, ..., named in file_list.txt (PLSC)."""

    layout = "base64"
    # Bytes of a record before its payload, the base64 text.
    lead = 0

    def shard_name(self, number: int, count: int) -> str:
        """The file name of a shard."""
        del count
        return f"base64_rank_{number}"

    def other_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """What belongs beside the shards, by file name."""
        return {"file_list.txt": "".join(f"{name}\n" for name in names).encode()}

    def record_bytes(self, payload_bytes: int, label: int) -> int:
        """Bytes of a record with such a payload."""
        return payload_bytes + len(f"\t{label}\n")

    def pack(
        self, images: Sequence[bytes], labels: Sequence[int], where: Callable
    ) -> tuple[list[bytes], list[int]]:
        """Returns records, and the bytes of their payloads.

        Args:
            images: encoded images.
            labels: one for each.
            where: maps the number of an image in the list to its place, for errors.
        """
        del where
        records = [
            base64_text.encode_line(image, label)
            for image, label in zip(images, labels, strict=True)
        ]
        return records, [4 * ((len(image) + 2) // 3) for image in images]


class RecordOutput:
    """TFRecord files of examples with FastNN's keys."""

    layout = "tfrecord"
    lead = tfrecord.HEADER

    def shard_name(self, number: int, count: int) -> str:
        """The file name of a shard."""
        return f"part-{number:05d}-of-{count:05d}.tfrecord"

    def other_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """What belongs beside the shards: nothing."""
        del names
        return {}

    def record_bytes(self, payload_bytes: int, label: int) -> int:
        """Bytes of a record with such a payload."""
        del label
        return tfrecord.HEADER + payload_bytes + tfrecord.FOOTER

    def pack(
        self, images: Sequence[bytes], labels: Sequence[int], where: Callable
    ) -> tuple[list[bytes], list[int]]:
        """See `Base64Output.pack`.

        Raises:
            ValueError: bytes that are no image of a format TensorFlow decodes.
        """
        return self.frame(
            [
                tfrecord.encode_example(image, _format_of(image, number, where), label)
                for number, (image, label) in enumerate(
                    zip(images, labels, strict=True)
                )
            ]
        )

    def frame(self, payloads: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
        """Returns records of payloads, and the bytes of these."""
        records = [tfrecord.frame(payload) for payload in payloads]
        return records, [len(payload) for payload in payloads]


def output_of(layout: str) -> Base64Output | RecordOutput:
    """Returns the output for "base64" or "tfrecord"."""
    kinds = {"base64": Base64Output, "tfrecord": RecordOutput}
    if layout not in kinds:
        raise ValueError(
            f"output_format must be tfrecord or base64. Received: {layout!r}."
        )
    return kinds[layout]()


def _format_of(image, number, where):
    for beginning, name in _BEGINNINGS.items():
        if image.startswith(beginning):
            return name
    raise ValueError(
        f"{where(number)} is no JPEG, PNG or GIF file: it begins with "
        f"{bytes(image[:8])!r}. `python -m plsc_tf.check` finds all such files."
    )
