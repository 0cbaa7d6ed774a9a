"""Every feature of the design has a test or a command that shows it."""

import ast
import functools
import importlib.util
import re
import shlex

import pytest

from plsc_tf.options.settings import known_options
from tests.programs import ROOT

PAGE = ROOT / "docs" / "features.md"
# Numbers of the design: how many rows each group has.
GROUPS = {"D": 15, "M": 6, "H": 11, "T": 16, "C": 6, "E": 8, "L": 4, "S": 5}


def rows():
    """Yields (id, feature, [what shows it]) of the page's tables."""
    for line in PAGE.read_text().splitlines():
        if found := re.fullmatch(r"\| ([A-Z]\d+) \| (.+) \| (.+) \|", line):
            name, feature, shown = found.groups()
            yield name, feature, re.findall(r"`([^`]+)`", shown)


def fault(shown):
    """What is wrong with a test or command of the page; None: nothing."""
    if shown.startswith("python -m "):
        return _fault_of_command(shlex.split(shown)[2:])
    file, _, name = shown.partition("::")
    if not (path := ROOT / "tests" / file).is_file():
        return f"there is no tests/{file}"
    names = names_in(path)
    if not names or (name and name not in names):
        return f"tests/{file} has no {name or 'test'}"
    return None


def _fault_of_command(words):
    module, *options = words
    if importlib.util.find_spec(module) is None:
        return f"there is no module {module}"
    if module.startswith("benchmarks."):
        return None
    names = [option.lstrip("-").partition("=")[0] for option in options]
    unknown = [name for name in names if name not in known_options()]
    return f"{module} has no option {unknown[0]}" if unknown else None


@functools.cache
def names_in(path):
    """Names of the tests of a file that run without `-m slow`."""
    tree = ast.parse(path.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    tests = {one.name: one for one in functions if one.name.startswith("test_")}
    marks = {name: map(ast.unparse, one.decorator_list) for name, one in tests.items()}
    return {name for name in tests if "pytest.mark.slow" not in marks[name]}


ROWS = list(rows())


def test_no_row_is_missing():
    expected = [f"{group}{n + 1}" for group in GROUPS for n in range(GROUPS[group])]
    assert [name for name, _, _ in ROWS] == expected


@pytest.mark.parametrize(("name", "feature", "shown"), ROWS, ids=[r[0] for r in ROWS])
def test_something_shows_it(name, feature, shown):
    assert shown
    assert [fault(one) for one in shown] == [None] * len(shown)
