"""Every hyper-parameter file parses, and says what to expect of it."""

import pathlib
import re

import pytest

from plsc_tf import cli

FILES = sorted((pathlib.Path(__file__).parents[2] / "hparams").glob("*.cfg"))


def names(path):
    return path.name


def header(path):
    """Returns the comment lines at the top of a file, joined."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return "\n".join(lines)


@pytest.mark.parametrize("path", FILES, ids=names)
def test_the_file_parses_and_can_be_repeated(path, tmp_path):
    settings = cli.parse([f"--flagfile={path}"])
    cli.write_flags(settings, tmp_path / "flags.cfg")
    assert cli.parse([f"--flagfile={tmp_path / 'flags.cfg'}"]) == settings


@pytest.mark.parametrize("path", FILES, ids=names)
def test_the_header_tells_command_hardware_time_and_score(path):
    text = header(path)
    for topic in ("command", "hardware", "time", "score"):
        assert re.search(rf"^{topic}:\s*\S", text, re.MULTILINE | re.IGNORECASE), topic
    assert "TODO" not in text
    assert f"--flagfile=hparams/{path.name}" in text


@pytest.mark.parametrize("path", FILES, ids=names)
def test_no_option_is_set_twice(path):
    text = path.read_text()
    options = re.findall(r"^(?:--)?(\w+)\s*=", text, re.MULTILINE)
    assert len(options) == len(set(options))
