"""Lists the commands (`python -m plsc_tf`).

`setup.py` makes a console script of each: `plsc-train` runs `plsc_tf.train`.
"""

import ast
import pathlib
import runpy
import sys

COMMANDS = (
    *("train", "evaluate", "export", "embed", "serve"),
    *("align", "launch", "check", "convert", "classes", "import_checkpoint"),
)


def main():
    """Prints the commands with the first line of each command's help."""
    folder = pathlib.Path(__file__).parent
    lines = [
        "usage: python -m plsc_tf.COMMAND [--key=value ...]; --help lists options",
        "   or: plsc-COMMAND [--key=value ...]",
        "",
    ]
    for name in COMMANDS:
        tree = ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))
        first = ast.get_docstring(tree).splitlines()[0]
        lines.append(f"  python -m plsc_tf.{name:18}{first}")
    wrong = sys.argv[1:] and sys.argv[1] not in ("--help", "-h")
    (sys.stderr if wrong else sys.stdout).write("\n".join(lines) + "\n")
    sys.exit(2 if wrong else 0)


def script():
    """Runs the command that a console script is named after, as `python -m` does."""
    name = pathlib.Path(sys.argv[0]).stem.removeprefix("plsc-").replace("-", "_")
    runpy.run_module(f"plsc_tf.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
