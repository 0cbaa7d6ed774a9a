"""The README's Python blocks run, and what it names exists."""

import numpy as np
import pytest
from PIL import Image

from tests.conformance.guide_commands import ROOT, blocks
from tests.marks import slow

README = (ROOT / "README.md").read_text()
PAGES = (ROOT / "README.md", ROOT / "docs/python.md")
BLOCKS = [block for page in PAGES for block in blocks(page, "python")]
# At most this many characters, so that it is read.
LONGEST = 10_000


@pytest.mark.parametrize("network", ["lenet", slow("resnet10")])
def test_python_blocks_run_in_order(network, tmp_path, monkeypatch):
    """The documents' network is resnet10, which takes long to trace."""
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 40), "teal").save("photo.jpg")
    names = {"pictures": np.zeros((3, 32, 32, 3), np.uint8)}
    for block in BLOCKS:
        block = block.replace('"resnet10"', f'"{network}"')
        exec(compile(block, "README.md, python.md", "exec"), names)  # noqa: S102
    assert len(names["history"].history["loss"]) == 2
    assert names["embeddings"].shape == (1, 64)
    assert sum(len(labels) for _, labels in names["data"].epoch(0)) == 3
    assert (tmp_path / "runs" / "notebook" / "1" / "manifest.json").is_file()


def test_it_is_short():
    assert len(README) <= LONGEST


def test_the_notebook_cell_is_short():
    (cell,) = [block for block in BLOCKS if "history = model.fit" in block]
    assert len([line for line in cell.splitlines() if line.strip()]) <= 15


def test_every_recipe_is_in_its_guide():
    recipes = (ROOT / "docs/recipes.md").read_text()
    for path in (ROOT / "hparams").glob("*.cfg"):
        assert path.name in recipes, f"{path.name} is not in docs/recipes.md"
