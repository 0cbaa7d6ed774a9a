"""Renders self-contained HTML pages from the templates in `pages/`."""

import base64
import pathlib

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
    environment.filters["base64"] = lambda content: base64.b64encode(content).decode()
    text = environment.get_template(template).render(values)
    return text.encode(errors="backslashreplace")
