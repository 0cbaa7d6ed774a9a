"""Reads flag files of absl and FastNN, and writes files that repeat a run.

A line is `--key=value` (absl), `key=value` (FastNN), `--key` or `--nokey` for
booleans, `--flagfile=other.cfg` (relative to the file that contains it), or a comment.
The files of `hparams/` are part of the package and are found by name.
"""

import codecs
import dataclasses
import importlib.resources
import os
import re

from plsc_tf.flags.option import CONTROLS
from plsc_tf.options.other_systems import nearest_option
from plsc_tf.options.settings import ALL, known_options, select
from plsc_tf.requirements import did_you_mean, require, similar_name
from plsc_tf.storage import files

_LINE = re.compile(r"(?P<dashes>--?)?(?P<name>[A-Za-z]\w*(?:-\w+)*)(?P<rest>.*)")
_COMMENT = re.compile(r"\s#")
_QUOTED = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)")\s*(?:#.*)?""")
# No run needs more; a few files that include each other could be read 2^28 times.
_MOST_FILES, _MOST_BYTES = 100, 1 << 20
_HEADER = """\
# All options of a run, written by plsc_tf. The run again, or its resumption:
#   python -m plsc_tf.train --flagfile={path}
# Relative paths are relative to the folder the command is called from.
"""


@dataclasses.dataclass(frozen=True)
class Assignment:
    """An assignment from a flag file or the command line.

    Attributes:
        name: the option's name.
        value: the value as text; None for a `--key` without a value.
        origin: file and line for error messages; "" for the command line.
    """

    name: str
    value: str | None
    origin: str


def read_flagfile(path, read=None):
    """Yields the assignments in a flag file and the files it includes, in order.

    Args:
        path: the file; remote paths (`hdfs://...`) are read through TensorFlow. A name
            that is not a local file is looked up in the package: `quickstart.cfg` or
            `hparams/quickstart.cfg`.
        read: list of the files read so far, to which this one is added.

    Raises:
        FileNotFoundError: the file does not exist; the message suggests the most
            similar name and, for a name without a folder, lists the package's files.
        ValueError: a line is not an assignment, or there are too many files, for
            example because a file includes itself.
    """
    path, read = _locate(path), [] if read is None else read
    read.append(path)
    rule = f"flag file '{read[0]}' and what it includes are over {_MOST_FILES} files"
    advice = "A file counts as often as it is included, also by itself"
    require(len(read) <= _MOST_FILES, rule, advice)
    # `splitlines` also splits at characters within what others show as a line.
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        origin = f"{path}:{number}"
        if (assignment := _read_line(line.strip(), origin)) is None:
            continue
        if assignment.name != "flagfile":
            yield assignment
            continue
        other = _locate(assignment.value or "", os.path.dirname(path))
        try:
            yield from read_flagfile(other, read)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{origin}: {error}") from None


def packaged():
    """Returns {name: path} of the flag files in the package."""
    folder = importlib.resources.files("plsc_tf.hparams")
    paths = (path for path in folder.iterdir() if path.name.endswith(".cfg"))
    return {path.name: str(path) for path in sorted(paths)}


def _locate(name, folder=""):
    """Returns the path of a flag file in `folder`; if it is missing, in the package."""
    path = os.path.expanduser(name)
    if name and "://" not in path:
        path = os.path.join(folder, path)
    if "://" in path or os.path.exists(path):
        return path
    return packaged().get(name.removeprefix("hparams/"), path)


def write_flags(settings, path, remark=""):
    """Writes all options with `saved=True`; `--flagfile=<path>` reads them back.

    Options that the user left at their defaults are written as comments.

    Args:
        settings: the run's `Settings`.
        path: the file; its folder is created, and an existing file is replaced.
        remark: a line about parts of the run that the options don't describe.
    """
    values, texts, defaults = settings.as_dict(), [_HEADER.format(path=path)], []
    texts += [f"# {remark}\n"] if remark else []
    for item in filter(lambda item: item.saved, select(ALL)):
        value, title = values[item.name], f"\n# {item.group}\n"
        given = item.name in settings.given or item.name == "model_save_dir"
        changed = given or value != item.default
        lines = texts if changed else defaults
        lines += [title] if title not in lines else []
        mark = "" if changed else "# "
        lines.append(f"{mark}--{item.name}={_quote(item.format(value))}\n")
    text = "".join([*texts, "\n# Defaults:\n", *defaults])
    files.make_dirs(files.parent(os.fspath(path)))
    files.replace(os.fspath(path), text.encode())


def _read_line(line, origin):
    """Returns the assignment on a stripped line; None for comments and empty lines."""
    if not line or line.startswith(("#", "//")):
        return None
    match = _LINE.fullmatch(line)
    name, rest = (match["name"], match["rest"].lstrip()) if match else ("", line)
    if rest.startswith("="):
        return Assignment(name, _unquote(rest[1:], origin), origin)
    rest = _COMMENT.split(f" {rest}", maxsplit=1)[0].strip()
    if match and match["dashes"] and not rest:
        return Assignment(name, None, origin)
    if best := nearest_option(name, known_options()):  # what follows may be a secret
        message = f"expected '=' after '{name}'. Did you mean {best}=...?"
        raise ValueError(f"{origin}: {message}")
    raise ValueError(f"{origin}: unexpected '{line}'. Write key=value or --key=value.")


def _unquote(text, origin):
    """Returns a value without its quotes and any comment after it."""
    if match := _QUOTED.fullmatch(text):
        return "".join(filter(None, match.groups()))
    rule = f"{origin}: the quotes must enclose the whole value"
    require(not text.lstrip().startswith(("'", '"')), rule)
    return _COMMENT.split(text, maxsplit=1)[0].strip()


def _quote(text):
    """Quotes a value if needed, so that `_unquote` returns the same value."""
    whole = text == text.strip() and not _COMMENT.search(text)
    if whole and text[:1] not in ("'", '"'):
        return text
    for quote in ("'", '"'):
        if quote not in text:
            return f"{quote}{text}{quote}"
    raise ValueError(f"a flag file cannot hold both ' and \" in one value: {text}")


def _suggestion(path):
    """Returns the most similar name; lists the package's files if `path` may be one."""
    folder, name = os.path.split(path)
    if folder not in ("", "hparams"):
        return similar_name(path)
    names = packaged()
    similar = similar_name(path) or did_you_mean(name, names)
    return f"{similar} The flag files of plsc_tf are {', '.join(names)}."


def _read_text(path):
    if not path:
        raise FileNotFoundError("--flagfile needs a path: --flagfile=my.cfg")
    if "://" not in path and not os.path.isfile(path):
        what = "is not a file" if os.path.exists(path) else "does not exist"
        raise FileNotFoundError(f"flag file '{path}' {what}.{_suggestion(path)}")
    content = files.read_limited(path, _MOST_BYTES)
    # Editors on Windows may write UTF-16.
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
        place = found.start() if (found := CONTROLS.search(text)) else -1
    except UnicodeDecodeError as error:
        text, place = "", error.start
    rule = f"flag file '{path}' is not plain UTF-8 text (byte {place}); save it as that"
    require(place < 0, rule)
    return text
