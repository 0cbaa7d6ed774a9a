"""Pictures of every kind, and a list of them with known faults."""

import numpy as np
import pytest

from plsc_tf.data.images import encode


def pixels(seed, size=(16, 12)):
    """Pixels with a pattern of their own, smooth enough for JPEG."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 3, 3), np.uint8)
    return np.kron(coarse, np.ones((size[0] // 4, size[1] // 3, 1), np.uint8))


@pytest.fixture
def write_list(tmp_path):
    """Writes pictures and a label.txt: {name: bytes or None}, [lines]."""

    def write(files, lines):
        (tmp_path / "images").mkdir(exist_ok=True)
        for name, content in files.items():
            (tmp_path / "images" / name).write_bytes(content)
        (tmp_path / "label.txt").write_text("".join(f"{line}\n" for line in lines))
        return tmp_path

    return write


@pytest.fixture
def sound(write_list):
    """A sound list: six pictures of three classes."""
    files = {f"{k}.png": encode(pixels(k)) for k in range(6)}
    return write_list(files, [f"images/{k}.png {k % 3}" for k in range(6)])
