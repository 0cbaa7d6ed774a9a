"""Command lines and flag files become `Settings`.

Flag files are read first, in the order given; options on the command line win, wherever
they stand.
"""

from collections.abc import Sequence

from plsc_tf.options import fastnn
from plsc_tf.options.flagfiles import Assignment, read_flagfile
from plsc_tf.options.option_names import ignored_name, nearest_option, unknown_option
from plsc_tf.options.settings import Settings, known_options, select


def read_settings(argv: Sequence[str], groups: Sequence[str]) -> Settings:
    """Returns the settings that flag files and a command line describe.

    Args:
        argv: the arguments after the program's name.
        groups: names of the option groups and options allowed on the command line, see
            `plsc_tf.options.settings.select`; flag files may hold all, because a
            training's file serves every command.

    Raises:
        FileNotFoundError: a flag file is missing.
        ValueError: an unknown option, a stray word, a value that is not allowed.
    """
    paths, arguments = _split_flagfiles(argv)
    values, given = {}, set()
    for path in paths:
        for assignment in read_flagfile(path):
            name, value = _read(assignment)
            values[name] = value
            # The file says of some lines that they are defaults; one that holds
            # another value was edited since.
            if not assignment.default or value != known_options()[name].default:
                given.add(name)
    used = {item.name for item in select(groups)}
    line = {}
    for assignment in _read_arguments(arguments):
        name, value = _read(assignment)
        if name not in used and not ignored_name(name):
            raise ValueError(f"--{name} has no effect on this command; leave it out")
        line[name] = value
    if "batch_size" in line:
        # The files' global_batch_size would decide, and the command line wins.
        values.pop("global_batch_size", None)
        given.discard("global_batch_size")
    values, given = {**values, **line}, given | line.keys()
    return Settings.build({**fastnn.assumptions(values), **values}, given)


def _split_flagfiles(argv):
    """Separates `--flagfile=x` and `--flagfile x` from the other arguments."""
    files, rest = [], []
    items = iter(argv)
    for item in items:
        name, equals, value = item.partition("=")
        if name not in ("--flagfile", "-flagfile"):
            rest.append(item)
            continue
        value = value if equals else next(items, "")
        if not value:
            raise ValueError("expected --flagfile=<path>, received no path")
        files.append(value)
    return files, rest


def _read_arguments(arguments):
    """Yields the assignments: `--name=value`, `--name value`, `--name`, `--noname`."""
    known, items, before = known_options(), iter(arguments), ""
    for item in items:
        name, equals, value = item.lstrip("-").partition("=")
        if not item.startswith("-") or not name:
            raise ValueError(_stray(item, before))
        before = item
        if not equals:
            value = None
            switch = name in known and known[name].boolean
            if not switch and (name in known or ignored_name(name)):
                value = next(items, None)
        yield Assignment(name, value, "")


def _read(assignment):
    """Returns (option name, checked value) of an assignment."""
    known = known_options()
    name, text = assignment.name, assignment.value
    try:
        if ignored_name(name):
            return ignored_name(name), text
        if text is None and name.startswith("no") and name not in known:
            if name[2:] in known and known[name[2:]].boolean:
                name, text = name[2:], "false"
        if name not in known:
            raise ValueError(unknown_option(name, known))
        item = known[name]
        if text is None and not item.boolean:
            raise ValueError(f"'{name}' needs a value: --{name}={item.expected()}")
        return item.name, item.parse("true" if text is None else text)
    except ValueError as error:
        origin = f"{assignment.origin}: " if assignment.origin else ""
        raise ValueError(f"{origin}{error}") from None


def _stray(word, before):
    """Returns the sentence about an argument that belongs to no option."""
    known = known_options()
    name, equals, value = word.partition("=")
    flag = before.lstrip("-").partition("=")[0]
    if flag in known and known[flag].secret:
        return f"unexpected argument after --{flag}=... (not shown); quote its value"
    if before.lstrip("-") in known and known[flag].boolean:
        return f"unexpected argument '{word}'; did you mean {before}={word}?"
    if not equals and word.endswith((".cfg", ".flags")):
        return f"unexpected argument '{word}'; did you mean --flagfile={word}?"
    best = nearest_option(name, known)
    if best:
        value = value if equals else "..."
        return f"unexpected argument '{word}'; did you mean --{best}={value}?"
    if equals:
        return f"unexpected argument '{word}': {unknown_option(name, known)}"
    return f"unexpected argument '{word}'; options are --key=value"
