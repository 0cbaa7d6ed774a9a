"""The scripts and files of PLSC's and FastNN's documents: plsc.md and fastnn.md."""

import pathlib
import re


def _read(name):
    """Returns `{title: script or file}` of a page."""
    text = pathlib.Path(__file__).with_name(name).read_text(encoding="utf-8")
    return dict(re.findall(r"^## (\w+)\n.*?```\w+\n(.*?)```", text, re.S | re.M))


PLSC, FASTNN = _read("plsc.md"), _read("fastnn.md")
