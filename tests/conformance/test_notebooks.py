"""The notebooks of examples/ run, and show what is stored in them."""

import json
import re

import pytest

from tests import programs
from tests.marks import slow

FOLDER = programs.ROOT / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path, kind=None):
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if kind in (None, cell["cell_type"])]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_nothing_of_a_machine_is_stored(path):
    stored = json.dumps(
        [
            output.get("text", output.get("data", {}).get("text/plain"))
            for cell in cells(path, "code")
            for output in cell["outputs"]
        ]
    )
    assert not re.findall(r"/(?:tmp|home|root|work|usr|var)/|0x[0-9a-f]{6,}", stored)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for cell in cells(path, "markdown"):
        for link in re.findall(r"\]\(([^)#]+)\)", "".join(cell["source"])):
            assert (FOLDER / link).exists(), link


# Trained in seconds; the guides' blocks of Python run what the others show.
QUICK = "3_your_backbone.ipynb"


@pytest.mark.parametrize(
    "path",
    [path if path.name == QUICK else slow(path) for path in NOTEBOOKS],
    ids=lambda path: path.name,
)
def test_they_run(path):
    pytest.importorskip("aiohttp", reason="the last notebook needs the extra serving")
    done = programs.run(FOLDER / "run_notebooks.py", path, timeout=1800)
    assert len(re.findall(r"ipynb: [\d.]+ s", done.out)) == 1
