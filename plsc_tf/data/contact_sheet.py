"""Draws contact sheets, such as the effect of each augmentation and preprocessing."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from PIL import Image, ImageDraw

from plsc_tf.data import figures, images, preprocessing
from plsc_tf.data.augmentation import NUM_CHANCES, Augmentation, randaugment
from plsc_tf.requirements import require
from plsc_tf.storage import files

_TITLE_WIDTH, _GAP = 112, 2
# Images per row of the sheet of all operations, and rows side by side.
_IMAGES, _COLUMNS = 4, 3


def draw(
    path: str, rows: Sequence[tuple[str, Sequence[np.ndarray]]], *, columns: int = 1
):
    """Writes rows of images, each with a title, to one PNG.

    Args:
        path: path of the PNG, on any store.
        rows: a title and images for each row, at least one; images are uint8
            `[h, w, 3]`.
        columns: number of rows to place side by side.
    """
    rule = "A contact sheet needs at least one image"
    require(any(len(row) for _, row in rows), rule)
    height = max(picture.shape[0] for _, row in rows for picture in row) + _GAP
    width = max(picture.shape[1] for _, row in rows for picture in row) + _GAP
    down = -(-len(rows) // columns)
    across = _TITLE_WIDTH + max(len(row) for _, row in rows) * width
    sheet = Image.new("RGB", (columns * across, down * height), "white")
    pen = ImageDraw.Draw(sheet)
    for number, (title, row) in enumerate(rows):
        left, top = number // down * across, number % down * height
        pen.text((left + 4, top + height // 2 - 6), title, fill="black")
        for place, picture in enumerate(row):
            corner = (left + _TITLE_WIDTH + place * width, top)
            sheet.paste(Image.fromarray(np.asarray(picture)), corner)
    # A preview needs few colors, and dithering would double the size of the file.
    sheet = sheet.quantize(96, dither=Image.Dither.NONE)
    files.write(path, images.encode(sheet, optimize=True))


def draw_ops(
    path: str,
    pictures: Sequence | None = None,
    *,
    image_size: tuple[int, int] = (44, 44),
    seed: int = 0,
):
    """Draws the effect of every augmentation, RandAugment operation and preprocessing.

    Args:
        path: path of the PNG.
        pictures: at least one encoded image or array, see `images.to_rgb`; repeated
            if there are fewer than four. None uses synthetic figures.
        image_size: (height, width) of each image on the sheet, in pixels.
        seed: random seed.
    """
    if pictures is None:
        pictures = [figures.draw(0, k, k, (80, 80)) for k in range(_IMAGES)]
    repeated = itertools.islice(itertools.cycle(map(images.to_rgb, pictures)), _IMAGES)
    chance = tf.random.stateless_uniform([_IMAGES, NUM_CHANCES], [seed, 0])
    draw(path, list(_rows(list(repeated), chance, image_size)), columns=_COLUMNS)


def _rows(pictures, chance, size) -> Iterator[tuple[str, list[np.ndarray]]]:
    small = [images.resize(picture, size) for picture in pictures]
    yield "as it is", [picture.numpy() for picture in small]
    for field in dataclasses.fields(Augmentation):
        if shown := field.metadata["shown"]:
            change = Augmentation(**{field.name: shown})
            steps = preprocessing.build("none", size, change)
            yield f"{field.name} {np.min(shown)}", _changed(steps, small, chance)
    amounts = np.linspace(-0.9, 0.9, len(small), dtype=np.float32)
    for name, function in randaugment.OPERATIONS.items():
        results = map(function, small, amounts)
        yield f"RA {name}", [result.numpy() for result in results]
    for name in preprocessing.names():
        steps = preprocessing.build(name, size)
        yield name, _changed(steps, pictures, chance)
        results = map(steps.evaluate, pictures)
        yield f"{name}, evaluation", [result.numpy() for result in results]


def _changed(steps, pictures, chance):
    return [result.numpy() for result in map(steps.augment, pictures, chance)]
