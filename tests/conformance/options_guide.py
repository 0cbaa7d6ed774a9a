"""The text of docs/options.md: every option, what it does, and where it applies.

python -m tests.conformance.options_guide    # regenerates the guide
"""

import importlib
import re

from plsc_tf.__main__ import COMMANDS
from plsc_tf.flags import conditions
from plsc_tf.options.settings import ALL, select
from tests.programs import ROOT

PATH = ROOT / "docs" / "options.md"
HEAD = (
    "# Options\n\n"
    "This page lists every option, in the groups of `flags/`. If you set an option "
    "that has no effect, the log names it when the command starts, or as soon as this "
    "is known: `No effect here: adam_beta1 (only with optimizer=adam or "
    "adamweightdecay).` An option that the command does not use at all is an error on "
    "its command line, but is allowed in a flag file, because one file serves all "
    "commands.\n\n"
    "The page is generated: `python -m tests.conformance.options_guide`.\n"
)


def groups_of(command):
    """What a command uses, for `plsc_tf.options.settings.select`."""
    return importlib.import_module(f"plsc_tf.{command}").GROUPS


def text():
    """Returns the whole guide."""
    used = {command: set(select(groups_of(command))) for command in COMMANDS}
    parts = [HEAD]
    for group in ALL:
        parts.append(f"\n## {group}\n")
        parts.append("| option | default | description | only | commands |\n")
        parts.append("|---|---|---|---|---|\n")
        parts += [_row(item, used) for item in select([group])]
    return "".join(parts)


def _row(item, used):
    names = ", ".join(f"`{name}`" for name in (item.name, *item.aliases))
    default = item.format(item.default)
    only = conditions.describe(conditions.parse(item.applies))
    commands = ", ".join(command for command in COMMANDS if item in used[command])
    cells = (names, f"`{default}`" if default else "", item.help, only, commands)
    escaped = (re.sub(r"([|<*])", r"\\\1", cell) for cell in cells)
    return f"| {' | '.join(escaped)} |\n"


if __name__ == "__main__":
    PATH.write_text(text())
