"""Runs notebooks without Jupyter, all in one process, each in a folder of its own.

    python examples/run_notebooks.py                     # all of them
    python examples/run_notebooks.py --write             # and stores what they show
    python examples/run_notebooks.py examples/2_*.ipynb

It ends with status 1 where a cell raises, or shows something else than what is stored.
Numbers may differ: they depend on the machine.
"""

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import traceback

FOLDER = pathlib.Path(__file__).resolve().parent
# What a value shows itself as, and whether that is binary.
KINDS = {
    "image/png": ("_repr_png_", True),
    "image/svg+xml": ("_repr_svg_", False),
    "text/html": ("_repr_html_", False),
}
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def run(path, write):
    """Runs one notebook; returns what is wrong with it, a list of texts.

    Args:
        path: of the notebook.
        write: whether to store the outputs instead of comparing them.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names, faults = {"__name__": "__main__"}, []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, cell in enumerate(cells, 1):
            source = "".join(cell["source"])
            try:
                outputs = _run_cell(source, names, number, f"{path.name}[{number}]")
            except Exception:  # noqa: BLE001 - told, with the cell
                faults.append(f"cell {number}:\n{source}\n{traceback.format_exc()}")
                break
            text = json.dumps(outputs).replace(os.path.realpath(folder) + "/", "")
            outputs = json.loads(text)
            if write:
                cell["outputs"], cell["execution_count"] = outputs, number
            elif not _alike(outputs, cell):
                faults.append(
                    f"cell {number} shows something else than what is stored:\n"
                    f"{source}\n{_shape(outputs)}\n{_shape(cell['outputs'])}\n"
                )
    if write and not faults:
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")
    return faults


def _run_cell(source, names, number, title):
    """Runs a cell; returns its outputs in the notebook's format."""
    tree, last = ast.parse(source), None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, title, "exec"), names)  # noqa: S102
        if last is not None:
            value = eval(compile(last, title, "eval"), names)  # noqa: S307
    if source.rstrip().endswith(";"):
        value = None  # not shown
    outputs = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": _lines(printed)}
        )
    if value is not None:
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": number,
                "data": _shown(value),
                "metadata": {},
            }
        )
    return outputs + _figures()


def _figures():
    """The figures that a cell has drawn with pyplot, as Jupyter shows them."""
    pyplot, outputs = sys.modules.get("matplotlib.pyplot"), []
    for number in pyplot.get_fignums() if pyplot else ():
        figure, content = pyplot.figure(number), io.BytesIO()
        figure.savefig(content, format="png", dpi=72)
        picture = base64.b64encode(content.getvalue()).decode()
        data = {"image/png": picture, "text/plain": [str(figure)]}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        pyplot.close(figure)
    return outputs


def _lines(stream):
    return stream.getvalue().splitlines(keepends=True)


def _shown(value):
    data = {"text/plain": _ADDRESS.sub("", repr(value)).splitlines(keepends=True)}
    for kind, (method, binary) in KINDS.items():
        content = getattr(value, method, lambda: None)()
        if content is not None and binary:
            data[kind] = base64.b64encode(content).decode()
        elif content is not None:
            data[kind] = content.splitlines(keepends=True)
    return data


def _alike(outputs, cell):
    """Whether the outputs are those that are stored, but for numbers and pictures.

    Of a cell with the tag "varies" words may differ, too.
    """
    found, stored = _shape(outputs), _shape(cell["outputs"])
    if "varies" in cell["metadata"].get("tags", ()):
        return [kinds for kinds, _ in found] == [kinds for kinds, _ in stored]
    return found == stored


def _shape(outputs):
    """The outputs without their numbers and pictures."""
    shape = []
    for output in outputs:
        data = output.get("data", {"text/plain": output.get("text", [])})
        text = " ".join(_NUMBER.sub("#", "".join(data["text/plain"])).split())
        shape.append((sorted(data), text))
    return shape


def main():
    """Runs what the command line names; the status says whether all is well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path)
    parser.add_argument("--write", action="store_true", help="store the outputs")
    given = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")  # no window
    wrong = 0
    paths = given.notebooks or sorted(FOLDER.glob("*.ipynb"))
    for path in [path.resolve() for path in paths]:
        start = time.monotonic()
        faults = run(path, given.write)
        passed = time.monotonic() - start
        sys.stdout.write(f"{path.name}: {passed:.1f} s\n{''.join(faults)}")
        sys.stdout.flush()
        wrong += len(faults)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
