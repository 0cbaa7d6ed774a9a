"""Creates the text of `--help`."""

import inspect
import itertools
import pathlib
import shutil
import sys
import textwrap
from collections.abc import Sequence

from plsc_tf.flags import conditions
from plsc_tf.options.settings import ALL, select

_COLUMN = 34
_RULES = """\
A flag file has one key=value or --key=value per line, and # comments. Flag files are \
read first, in the order given; options on the command line win. A switch is \
--key=true, --key=false, --key or --nokey; lists are separated by commas."""


def help_text(
    groups: Sequence[str] = ALL, usage: str | None = None, width: int | None = None
) -> str:
    """Returns the text of `--help`: the command, the syntax, and the options by group.

    Args:
        groups: the options to list; see `plsc_tf.options.settings.select`.
        usage: description of the command.
        width: width of the text in columns, or None to use the terminal's width, up to
            100.
    """
    width = width or min(shutil.get_terminal_size().columns, 100)
    program = pathlib.Path(sys.argv[0]).stem
    if not program.startswith("plsc-"):
        program = f"python -m plsc_tf.{program}"
    parts = [inspect.cleandoc(usage) + "\n\n"] if usage else []
    parts.append(f"usage: {program} [--flagfile=FILE ...] [--key=value ...]\n\n")
    parts.append(textwrap.fill(_RULES, width) + "\n")
    options = select(groups)
    # Objects created in Python are not available on the command line.
    facts = [name for name in conditions.FACTS if not name.startswith("own_")]
    names = {*facts, *(item.name for item in options)}
    for group, items in itertools.groupby(options, lambda item: item.group):
        parts.append(f"\n{group}:\n")
        parts += [_entry(item, names, width) for item in items]
    return "".join(parts)


def _entry(item, names, width):
    """Formats one option's help, with the name and default in the left column."""
    parsed = conditions.parse(item.applies)
    known = [[t for t in terms if conditions.name_in(t) in names] for terms in parsed]
    notes = [item.help]
    if item.choices and not all(choice in item.help for choice in item.choices):
        notes.append("one of " + ", ".join(item.choices))
    if item.within:
        notes.append(item.bounds())
    if known and all(known):
        notes.append(f"only {conditions.describe(known)}")
    if item.aliases:
        notes.append("also " + ", ".join("--" + name for name in item.aliases))
    left = f"  --{item.name}={item.format(item.default)}"
    text = textwrap.fill("; ".join(notes), max(width - _COLUMN, 20))
    text = textwrap.indent(text, " " * _COLUMN)
    beside = len(left) <= _COLUMN - 2
    return f"{left.ljust(_COLUMN)}{text[_COLUMN:]}\n" if beside else f"{left}\n{text}\n"
