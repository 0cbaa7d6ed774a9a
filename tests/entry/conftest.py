"""A folder as PLSC has it, and its scripts run in it on small networks."""

import base64
import sys

import pytest

from tests.entry.plsc_folder import make_train_data, small_library


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the scripts run, in the order of the tests."""
    folder = tmp_path_factory.mktemp("plsc")
    make_train_data(folder, [number % 5 for number in range(12)])
    dataset = folder / "dataset"
    dataset.mkdir()
    for part in range(2):
        lines = [
            f"{base64.b64encode(path.read_bytes()).decode()}\t{number % 5}\n"
            for number, path in enumerate(sorted(folder.rglob("*.jpg")))
            if number % 2 == part
        ]
        (dataset / f"dataset.part{part}").write_text("".join(lines))
    (dataset / "file_list.txt").write_text("dataset.part0\ndataset.part1\n")
    return folder


@pytest.fixture
def run_script(folder, monkeypatch):
    """Runs a script in the folder, as `python script.py` would; returns its names.

    What it imports of plsc_tf begins with the small network instead of the defaults.
    """

    def run(script, **options):
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            patch.setitem(sys.modules, "plsc_tf", small_library(**options))
            names = {"__name__": "__main__", "LAYERS": 10, "EMB_DIM": 8}
            exec(compile(script, "script.py", "exec"), names)  # noqa: S102
        return names

    return run
