"""The commands of the guides: every `python -m plsc_tf.…` in a block of shell."""

import dataclasses
import importlib
import re
import shlex
import subprocess

from plsc_tf.options import cli
from plsc_tf.parallel.launch import plan
from tests.programs import ROOT

GUIDES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
# What stands for something that only the reader knows: <new>, <another folder>.
_BLANK = re.compile(r"<[a-z][^<>\n]*>")
_VARIABLE = re.compile(r"\$[A-Z_]+")


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of a guide.

    Attributes:
        guide: file name of the guide.
        line: its text, on one line.
        module: the X of plsc_tf.X.
        words: its arguments.
    """

    guide: str
    line: str
    module: str
    words: tuple[str, ...]

    def __str__(self):
        return f"{self.guide}: {self.line}"


def blocks(path, language="shell|bash|sh"):
    """The blocks of a guide in a language."""
    pattern = rf"```(?:{language})\n(.*?)```"
    return re.findall(pattern, path.read_text("utf-8"), re.DOTALL)


def lines(path):
    """The lines of the blocks; one that is continued is one line."""
    for block in blocks(path):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                yield " ".join(line.split())


def run_curl(text):
    """Runs lines of `curl`, none of which may fail; returns what they print."""
    line = text.replace("curl ", "curl -sSf ")
    done = subprocess.run(["bash", "-euc", line], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands():
    """All commands of all guides, in their order; 7 stands for a blank."""
    return [
        Command(path.name, line, module, words)
        for path in GUIDES
        for line in lines(path)
        for module, words in in_line(line)
    ]


def in_line(line):
    """Yields (module, words) of each of our commands in a line."""
    words = shlex.split(_VARIABLE.sub("0", _BLANK.sub("7", line)), comments=True)
    if "-c" in words and words[words.index("-c") - 1] == "bash":
        yield from in_line(words[words.index("-c") + 1])
        return
    for place, word in enumerate(words):
        if word == "-m" and words[place + 1].startswith("plsc_tf."):
            rest = words[place + 2 :]
            ends = [rest.index(end) for end in ("&&", "|", ";", "&") if end in rest]
            # "..." stands for further options.
            own = [each for each in rest[: min(ends, default=None)] if each != "..."]
            yield words[place + 1].removeprefix("plsc_tf."), tuple(own)


def parse(command):
    """The settings of a command, and of the program that a launcher starts.

    Flag files are read in the working directory.

    Returns:
        list of (module, `Settings`).
    """
    if command.module != "launch":
        return [_parse(command.module, command.words)]
    own, words = plan.split(list(command.words))
    module, settings = _parse("launch", own)
    started = settings.launching.module.removeprefix("plsc_tf.")
    if words and words[0].endswith(".py"):
        return [(module, settings)]
    return [(module, settings), _parse(started, words)]


def _parse(name, words):
    module = importlib.import_module(f"plsc_tf.{name}")
    return name, cli.parse(getattr(module, "arguments", list)(words), module.GROUPS)


def flag_files(command):
    """The paths that a command reads its options from."""
    return re.findall(r"--flagfile[= ](\S+)", " ".join(command.words))
