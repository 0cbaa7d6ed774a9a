"""Imports point down the layers, and importing does nothing."""

import ast
import pathlib
import re

import pytest

from tests import programs

ROOT = pathlib.Path(__file__).parents[2]
# From the bottom up: a room imports from those below it. A module outside of the rooms
# is a room of its own.
ROOMS = (
    ("hints", "requirements"),
    (
        *("dotted_paths", "graphs", "initializers", "private_apis", "progress"),
        "pseudorandom",
        "versions",
    ),
    ("parallel", "storage"),
    ("flags", "heads"),
    ("data",),
    ("backbones", "checkpoints", "datasets", "evaluation", "testing", "utils"),
    ("models", "reporting", "serving"),
    ("training",),
    ("boost",),
    ("options",),
    ("jobs",),
    (
        *("align", "check", "classes", "convert", "embed", "evaluate", "export"),
        *("import_checkpoint", "launch", "serve", "train"),
        "entry_setters",
    ),
    ("__main__", "entry"),
)
LEVELS = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
SOURCES = [
    path
    for folder in ("plsc_tf", "flags", "datasets")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != ROOT / "plsc_tf" / "__init__.py"
]


def part_of(path):
    first = path.relative_to(ROOT).parts
    return pathlib.Path(first[1] if first[0] == "plsc_tf" else first[0]).stem


def imported_parts(path):
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            words = name.split(".")
            if words[0] == "plsc_tf" and len(words) > 1:
                yield words[1]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    # To rooms: the clone's root is on the package's path, so `plsc_tf.tests` would
    # import.
    own = part_of(path)
    for other in imported_parts(path):
        if other == own:
            continue
        assert LEVELS[other] < LEVELS[own], f"{own} imports {other}"


def test_only_jobs_and_commands_take_settings():
    below = ("parallel", "storage", "heads", "data", "backbones", "checkpoints")
    below += ("evaluation", "reporting", "serving", "training", "boost")
    for path in SOURCES:
        if part_of(path) in below:
            tree = ast.parse(path.read_text())
            names = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
            assert "settings" not in names, path


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_small(path):
    # Keras's methods of a model have long signatures.
    limit = 450 if path.name == "classifier.py" else 400
    assert len(path.read_text().splitlines()) <= limit


def test_neither_the_command_line_nor_the_client_imports_tensorflow():
    code = (
        "import plsc_tf.launch, plsc_tf.options.cli, sys; "
        "from plsc_tf import Client, FaceService; "
        "sys.exit('tensorflow' in sys.modules or 'aiohttp' in sys.modules)"
    )
    programs.run("-c", code)


def test_public_names_exist():
    import plsc_tf

    for name in plsc_tf.__all__:
        assert getattr(plsc_tf, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Classifer'"):
        plsc_tf.Classifer  # noqa: B018


def test_only_storage_calls_tensorflows_file_functions():
    # `tf.io.gfile` answers "absent" when a server is down; `storage.files` raises.
    raw = re.compile(r"\b(tf|tensorflow)\.(compat\.v1\.)?(io\.)?gfile\b|\bfile_io\b")
    for path in SOURCES:
        assert part_of(path) == "storage" or not raw.search(path.read_text()), path


def test_private_apis_are_in_one_module():
    for path in SOURCES:
        if path.name == "private_apis.py":
            continue
        source = path.read_text()
        for private in ("tensorflow.python", "keras.src", "._flatten_layers"):
            assert private not in source, path
