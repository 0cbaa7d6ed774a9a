"""Errors of `Entry` in the words of a script: setters, and no traceback of ours."""

import functools
import os
import re
import sys
import traceback

from plsc_tf.entry_setters import OF_OPTIONS
from plsc_tf.options import cli
from plsc_tf.options.settings import known_options

# Setters of several values, of which a flag's is not the first.
_SEVERAL = ("set_distfc_attr", "set_hdfs_info", "set_mixed_precision")
_FLAG = re.compile(r"(Pass |pass )?--(\w+)(?:=(<[^>]*>|'[^']*'|[^\s,;]*[^\s,;.:?)]))?")
_NAMED = re.compile(r"(?<![\w.(-])([a-z]\w+)(?==|\s+must\b)")
# An error that went through nothing but these is no error of the script's own code.
_LIBRARIES = {"plsc_tf", "tensorflow", "keras", "numpy", "absl", "PIL"}
_LIBRARIES |= set(sys.stdlib_module_names)


def for_scripts(cls):
    """Decorates a class whose methods a script calls: its errors are worded for it.

    An error that a user can act on names the setter instead of the flag, and its
    traceback ends at the script's own line; PLSC_TF_TRACEBACK=1 in the environment
    shows all of it. An error that comes from code of the user's own, as a reader or a
    network, stays as it is.
    """
    for name in dir(cls):
        member = getattr(cls, name)
        if isinstance(member, property):
            setattr(cls, name, property(_worded(member.fget), doc=member.__doc__))
        elif callable(member) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _worded(member))
    return cls


def _worded(method):
    @functools.wraps(method)
    def call(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except Exception as error:
            shown = os.environ.get(cli.TRACEBACK_VARIABLE) == "1"
            if shown or not cli.is_for_users(error) or not _is_of_libraries(error):
                raise
            if len(error.args) == 1 and isinstance(error.args[0], str):
                error.args = (in_setters(error.args[0]),)
            raise error.with_traceback(None) from None

    return call


def in_setters(text):
    """Returns a message with setters in the place of command-line flags."""
    text = _FLAG.sub(_call, text)
    known, setters = known_options(), []
    for name in _NAMED.findall(text):
        setter = OF_OPTIONS.get(known[name].name) if name in known else None
        if setter and setter not in (*setters, *re.findall(r"set_\w+", text)):
            setters.append(setter)
    return f"{text} In a script: {', '.join(setters)}." if setters else text


def _call(match):
    """The call in a script that does what a flag does."""
    verb, name, value = match.groups()
    known = known_options()
    negative = name.startswith("no") and name[2:] in known and name not in known
    if negative:
        name, value = name[2:], "false"
    if name not in known:
        return match[0]
    option = known[name]
    if value is None and option.boolean:
        value = "true"
    shown = "..." if value is None else _literal(option, value)
    setter = OF_OPTIONS.get(option.name)
    if setter is None:
        call = f"Entry({option.name}={shown})"
    elif value is None or setter in _SEVERAL:
        call = setter
    else:
        call = f"{setter}({shown})"
    verbs = {"Pass ": "Write ", "pass ": "write "}
    return f"{verbs.get(verb, '')}{call}"


def _literal(option, text):
    """A flag's value as Python writes it; placeholders as they are."""
    try:
        value = option.parse(text.strip("'"))
    except ValueError:
        return repr(text)
    return repr(list(value) if option.many else value)


def _is_of_libraries(error):
    """Whether an error, and what led to it, was raised below no code of the user's."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            module = frame.f_globals.get("__name__", "")
            if module.partition(".")[0] not in _LIBRARIES:
                return False
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    return True
