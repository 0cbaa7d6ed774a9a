"""The look of our pages: self-contained HTML, with tables and charts."""

import html

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1060px; padding: 24px; color: #222; background: #fff;
  font: 15px/1.5 system-ui, Helvetica, Arial, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 21px; margin: 40px 0 8px;
  border-top: 2px solid #222; padding-top: 12px; }
h3 { font-size: 16px; margin: 22px 0 6px; }
p { margin: 6px 0; } .quiet { color: #666; font-size: 13px; }
table { border-collapse: collapse; width: 100%; margin: 6px 0; }
th, td { text-align: left; vertical-align: top; padding: 4px 12px 4px 0;
  border-bottom: 1px solid #e2e2e2; }
th { font-weight: 600; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: 13px ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.charts { display: grid; gap: 18px; align-items: end;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr)); }
figure { margin: 0; min-width: 0; }
figure svg { width: 100%; height: auto; display: block; }
figcaption { color: #666; font-size: 13px; }
.pairs { display: grid; gap: 14px;
  grid-template-columns: repeat(auto-fill, minmax(232px, 1fr)); }
.pair { border: 1px solid #e2e2e2; border-radius: 6px; padding: 8px; min-width: 0; }
.pair div { display: flex; gap: 6px; }
.pair img { width: 100px; height: 100px; object-fit: contain; background: #f4f4f4; }
.pair p { overflow-wrap: anywhere; }
.wrong { color: #a11; font-weight: 600; } .right { color: #2c6e2c; font-weight: 600; }
@media print { body { max-width: none; } h2 { break-before: page; } }
"""


def document(title, parts):
    """The bytes of a page.

    Args:
        title: of the page.
        parts: HTML; empty ones are left out.
    """
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{text(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{text(title)}</h1>",
        *parts,
        "</body></html>",
    ]
    return ("\n".join(line for line in lines if line) + "\n").encode()


def table(title, values):
    """A table of `{what: value}` below a small heading; empty where there are none."""
    if not values:
        return ""
    rows = "".join(
        f"<tr><th>{text(what.replace('_', ' '))}</th><td><code>{text(value)}</code>"
        "</td></tr>"
        for what, value in values.items()
    )
    return f"<h3>{text(title)}</h3><table>{rows}</table>"


def charts(pictures):
    """A grid of [(caption, SVG)]; empty where there are none."""
    figures = [
        f"<figure>{chart}<figcaption>{text(caption)}</figcaption></figure>"
        for caption, chart in pictures
    ]
    return f'<div class="charts">{"".join(figures)}</div>' if figures else ""


def text(value):
    """A value as text within HTML."""
    return html.escape(str(value))
