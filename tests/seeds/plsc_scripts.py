"""Reads the scripts of PLSC's documents from plsc_scripts.md."""

import pathlib
import re

_PAGE = pathlib.Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
# {name: script}.
SCRIPTS = dict(re.findall(r"^## (\w+)\n.*?```python\n(.*?)```", _PAGE, re.S | re.M))
