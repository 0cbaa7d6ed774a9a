"""Contact sheets show what they say."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from plsc_tf.data import contact_sheet, images, preprocessing
from plsc_tf.data.augmentation import Augmentation, randaugment


def test_rows_stand_beside_their_titles(tmp_path):
    red, blue = np.zeros((2, 8, 10, 3), np.uint8)
    red[..., 0], blue[..., 2] = 255, 255
    path = str(tmp_path / "sheet.png")
    contact_sheet.draw(path, [("first", [red, blue]), ("second", [blue, blue])])
    sheet = np.asarray(Image.open(path).convert("RGB"))
    assert sheet.shape[0] == 2 * (8 + 2)
    left = sheet.shape[1] - 2 * (10 + 2)
    np.testing.assert_array_equal(sheet[:8, left : left + 10], red)
    np.testing.assert_array_equal(sheet[:8, left + 12 : left + 22], blue)
    np.testing.assert_array_equal(sheet[10:18, left : left + 10], blue)
    assert (sheet[:10, :left] < 128).any()  # the title


def test_every_operation_is_drawn_with_or_without_pictures(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    shown = [field.metadata["shown"] for field in dataclasses.fields(Augmentation)]
    rows = 1 + sum(map(bool, shown)) + len(randaugment.OPERATIONS)
    rows += 2 * len(preprocessing.names())
    sheets = []
    for name, pictures in (("a", None), ("b", None), ("c", [images.encode(pixels)])):
        path = tmp_path / f"{name}.png"
        contact_sheet.draw_ops(str(path), pictures, image_size=(16, 16))
        assert Image.open(path).size[1] == -(-rows // 3) * 18
        sheets.append(path.read_bytes())
    assert sheets[0] == sheets[1] != sheets[2]
    with pytest.raises(ValueError, match="at least one image"):
        contact_sheet.draw(str(tmp_path / "d.png"), [])
