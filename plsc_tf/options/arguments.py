"""Command lines and flag files become values of options, by name.

absl reads the command line, on a registry of our own: the global FLAGS stays empty.
"""

from absl import flags

from plsc_tf.options.flagfiles import read_flagfile
from plsc_tf.options.option_names import nearest_option, unknown_option
from plsc_tf.options.settings import known_options, select


def read_arguments(argv, groups):
    """Returns the values of options, and which of them the user gave.

    Args:
        argv: the arguments after the program's name.
        groups: names of the option groups and options allowed on the command line, see
            `plsc_tf.options.settings.select`; flag files may hold all, because a
            training's file serves every command.

    Returns:
        ({option name: value}, names without the defaults that a run's flags.cfg notes).

    Raises:
        FileNotFoundError: a flag file is missing.
        ValueError: an unknown option, a stray word, a value that is not allowed.
    """
    files, rest = _split_flagfiles(argv)
    values, given = {}, set()
    for path in files:
        for assignment in read_flagfile(path):
            item, value = _read_assignment(assignment)
            values[item.name] = value
            if not assignment.noted or value != item.default:
                given.add(item.name)
    line = _read_command_line(rest, groups)
    if "batch_size" in line:
        # The files' global_batch_size would decide, and the command line wins.
        values.pop("global_batch_size", None)
        given.discard("global_batch_size")
    return {**values, **line}, given | line.keys()


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


def _read_assignment(assignment):
    """Returns (the `Option`, its value) of a line of a flag file."""
    known = known_options()
    name, text = assignment.name, assignment.value
    try:
        if text is None and name.startswith("no") and name not in known:
            if name[2:] in known and known[name[2:]].boolean:
                name, text = name[2:], "false"
        if name not in known:
            raise ValueError(unknown_option(name, known))
        item = known[name]
        if text is None and not item.boolean:
            raise ValueError(f"'{name}' needs a value: --{name}={item.expected()}")
        return item, item.parse("true" if text is None else text)
    except ValueError as error:
        raise ValueError(f"{assignment.origin}: {error}") from None


def _read_command_line(argv, groups):
    """Returns {option name: value} for the arguments, by a private absl FlagValues."""
    known = known_options()
    registry = _registry()
    if "--undefok" in (item.partition("=")[0] for item in argv):
        raise ValueError(unknown_option("undefok", known))
    try:
        strays = registry(["plsc_tf", *argv])[1:]
    except flags.UnrecognizedFlagError as error:
        raise ValueError(unknown_option(error.flagname, known)) from None
    except flags.Error as error:
        # absl wraps the parser's error once per alias; the innermost is the clear one.
        cause = error
        while isinstance(cause, flags.IllegalFlagValueError) and cause.__context__:
            cause = cause.__context__
        raise ValueError(str(cause)) from None
    if strays:
        before = argv[: len(argv) - len(strays)]
        raise ValueError(_stray(strays[0], before[-1] if before else ""))
    values, used = {}, {item.name for item in select(groups)}
    for name in registry:
        item = known[name]
        if name != item.name or not registry[name].present:
            continue
        if name not in used:
            raise ValueError(f"--{name} has no effect on this command; leave it out")
        values[name] = registry[name].value
    return values


def _registry():
    """Returns a fresh absl registry of all options; the global FLAGS stays empty."""
    registry = flags.FlagValues()
    for name, item in known_options().items():
        module = f"plsc_tf.flags.{item.group}"
        if name == item.name:
            flag = flags.Flag(
                _Parser(item), None, name, item.default, item.help, boolean=item.boolean
            )
            flags.DEFINE_flag(flag, registry, module_name=module)
        else:
            flags.DEFINE_alias(name, item.name, registry, module_name=module)
    return registry


class _Parser(flags.ArgumentParser):
    """Lets absl read values as the options do."""

    def __init__(self, item):
        self._item = item

    def parse(self, argument):
        # absl parses defaults too, which are no text.
        if isinstance(argument, str):
            return self._item.parse(argument)
        return self._item.check(argument)


def _stray(word, before):
    """Returns the sentence about an argument that belongs to no option."""
    known = known_options()
    name, equals, value = word.partition("=")
    flag = before.lstrip("-").partition("=")[0]
    if flag in known and known[flag].secret:
        return f"unexpected argument after --{flag}=... (not shown); quote its value"
    flag = before.lstrip("-")
    if flag in known and known[flag].boolean and before.startswith("-"):
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
