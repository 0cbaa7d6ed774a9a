"""JPEG images of a benchmark: those of a folder, or drawn ones."""

import io
import pathlib


def read(folder, count):
    """The contents of at most `count` JPEG files of a folder, nested or not.

    Raises:
        FileNotFoundError: there is none.
    """
    files = sorted(pathlib.Path(folder).rglob("*"))
    files = [path for path in files if path.suffix.lower() in (".jpg", ".jpeg")]
    if not files:
        raise FileNotFoundError(f"There are no JPEG files in --images={folder}.")
    return [path.read_bytes() for path in files[:count]]


def draw(count, size):
    """The contents of `count` images of `size` x `size` pixels, of 100 classes."""
    from PIL import Image

    from plsc_tf.data import figures

    contents = []
    for number in range(count):
        pixels = figures.draw(0, number % 100, number // 100, (size, size))
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        contents.append(buffer.getvalue())
    return contents
