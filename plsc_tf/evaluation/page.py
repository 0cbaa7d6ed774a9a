"""Renders self-contained HTML pages from the templates in `pages/`."""

import base64
import pathlib
import re
from collections.abc import Iterable, Sequence

TEMPLATES = pathlib.Path(__file__).parent / "pages"


def render(template: str, **values) -> bytes:
    """Renders a template as HTML bytes; values are escaped.

    Args:
        template: file name in `pages/`.
        **values: the template's variables.
    """
    # Imported here because only runs that write a page need it.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "base64": lambda content: base64.b64encode(content).decode(),
        "breakable": _breakable,
        "numeric_columns": numeric_columns,
    }
    return environment.get_template(template).render(values).encode()


def numeric_columns(rows: Iterable[Sequence], count: int) -> list[bool]:
    """Returns whether each column holds only numbers; False for the first column."""
    columns = list(zip(*rows, strict=True))[1:]
    numeric = [
        all(re.fullmatch(r"-?[\d,]*\.?\d+", str(value)) for value in column)
        for column in columns
    ]
    return [False, *numeric] if columns else [False] * count


def _breakable(value):
    """Allows line breaks after underscores and commas, for narrow pages."""
    from markupsafe import Markup, escape

    text = escape(value)
    for mark in "_,":
        text = text.replace(mark, mark + Markup("<wbr>"))
    return text
