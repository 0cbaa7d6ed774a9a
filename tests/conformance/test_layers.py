"""Imports point down the layers, and importing does nothing."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# A module imports from its own part and from parts of lower levels.
LEVELS = {
    "name_hints": 0,
    "progress": 0,
    "dotted_paths": 0,
    "initializers": 0,
    "param_attr": 1,
    "options": 1,
    "flags": 2,
    "settings": 3,
    "fastnn": 4,
    "flagfiles": 4,
    "effects": 4,
    "arguments": 5,
    "parallel": 0,
    "storage": 1,
    "data": 3,
    "datasets": 4,
    "backbones": 3,
    "heads": 3,
    "checkpoints": 3,
    "evaluation": 3,
    "serving": 3,
    "training": 5,
    "boost": 6,
    "cli": 6,
    "train": 7,
    "evaluate": 7,
    "embed": 7,
    "export": 7,
    "import_checkpoint": 7,
    "convert": 7,
    "check": 7,
    "classes": 7,
    "launching": 7,
    "launch": 8,
    "models": 4,
    "utils": 4,
    "entry_setters": 4,
    "entry_errors": 7,
    "entry": 8,
    "serve": 7,
}
# The only imports between parts of one level.
ALLOWED = {("serving", "data"), ("serving", "backbones"), ("checkpoints", "data")}
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
    own = part_of(path)
    for other in imported_parts(path):
        if other == own or (own, other) in ALLOWED:
            continue
        assert LEVELS[other] < LEVELS[own], f"{own} imports {other}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_small(path):
    assert len(path.read_text().splitlines()) <= 400


def test_the_package_and_the_command_line_do_not_import_tensorflow():
    code = "import plsc_tf, plsc_tf.options.cli, sys; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_public_names_exist():
    import plsc_tf

    for name in plsc_tf.__all__:
        assert getattr(plsc_tf, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Classifer'"):
        plsc_tf.Classifer  # noqa: B018


def test_nothing_imports_the_clones_tests_through_the_package():
    # The clone's root is on the package's path, so `plsc_tf.tests` would import.
    for path in SOURCES:
        assert not set(imported_parts(path)) & {"tests", "plsc_tf", "setup"}
