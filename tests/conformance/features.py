"""Goes through docs/features.md: python -m tests.conformance.features [junit.xml ...]

With reports of `pytest --junitxml`, each test that is named must have passed in them.
"""

import ast
import collections
import functools
import importlib.util
import pathlib
import re
import shlex
import sys
import xml.etree.ElementTree

from plsc_tf.options.settings import known_options

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "features.md"
# Numbers of the design: how many rows each group has.
GROUPS = {"D": 13, "M": 6, "H": 9, "T": 12, "C": 6, "E": 5, "L": 3, "S": 4}


def rows():
    """Yields (id, feature, [what shows it]) of the page's tables."""
    for line in PAGE.read_text().splitlines():
        found = re.fullmatch(r"\| ([A-Z]\d+) \| (.+) \| (.+) \|", line)
        if found:
            name, feature, shown = found.groups()
            yield name, feature, re.findall(r"`([^`]+)`", shown)


def fault(shown):
    """What is wrong with a test or command of the page; None: nothing."""
    if shown.startswith("python -m "):
        return _fault_of_command(shlex.split(shown)[2:])
    file, _, name = shown.partition("::")
    path = ROOT / "tests" / file
    if not path.is_file():
        return f"there is no tests/{file}"
    names = tests_of(path)
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
def tests_of(path):
    """Names of the tests of a file that run without `-m slow`."""
    tree = ast.parse(path.read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {
        one.name
        for one in functions
        if one.name.startswith("test_")
        and "pytest.mark.slow" not in map(ast.unparse, one.decorator_list)
    }


def outcomes(reports):
    """`{(file below tests/, test): [passed, skipped or failed]}` of junit reports."""
    found = collections.defaultdict(list)
    for report in reports:
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            file = case.get("classname", "").removeprefix("tests.").replace(".", "/")
            kinds = {child.tag for child in case}
            outcome = "skipped" if "skipped" in kinds else "passed"
            if kinds & {"failure", "error"}:
                outcome = "failed"
            test = case.get("name").partition("[")[0]
            found[f"{file}.py", test].append(outcome)
    return found


def fault_of_run(shown, ran):
    """What kept a test of the page from showing its feature; None: nothing.

    Args:
        shown: a test or command of the page; only tests are looked for.
        ran: what `outcomes` returns.
    """
    if shown.startswith("python -m "):
        return None
    file, _, name = shown.partition("::")
    names = [name] if name else [test for path, test in ran if path == file]
    seen = [outcome for test in names for outcome in ran.get((file, test), [])]
    others = sorted(set(seen) - {"passed"})
    if not name and "passed" in seen:
        # Some tests of a file may need what is not there, such as real images.
        others = [one for one in others if one != "skipped"]
    if not seen or others:
        return f"tests/{shown} was {' and '.join(others) or 'not run'}"
    return None


def main():
    """Prints each row with what shows it; the status is 1 where something is wrong."""
    wrong, ran = 0, outcomes(sys.argv[1:])
    for name, feature, shown in rows():
        faults = [found for found in map(fault, shown) if found]
        if ran:
            faults += [f for f in (fault_of_run(one, ran) for one in shown) if f]
        wrong += bool(faults or not shown)
        told = "; ".join(faults) or ", ".join(shown) or "nothing shows it"
        sys.stdout.write(f"{name:4}{feature}: {told}\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
