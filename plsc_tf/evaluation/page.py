"""The look of our pages: self-contained HTML, with tables and charts."""

import base64
import html
import io

from PIL import Image

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
/* First columns are of one width, so that tables below each other align. */
th:first-child, td:first-child { width: 34%; }
table.facts th { font-weight: 400; color: #555; }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.remark { white-space: normal; width: 40%; }
th.right, td.right { text-align: right; font-variant-numeric: tabular-nums; }
.headline { display: flex; flex-wrap: wrap; align-items: flex-end; gap: 8px 36px;
  margin: 22px 0 14px; }
.headline div { min-width: 0; }
.headline b { display: block; font-size: 21px; line-height: 1.15; font-weight: 600;
  font-variant-numeric: tabular-nums; }
.headline div:first-child b { font-size: 54px; }
.headline span { color: #666; font-size: 13px; }
.images { display: grid; gap: 8px;
  grid-template-columns: repeat(auto-fill, minmax(112px, 1fr)); }
.images img { width: 100%; display: block; background: #f4f4f4; }
pre { background: #f4f4f4; padding: 8px 12px; overflow-x: auto; margin: 6px 0;
  font: 13px/1.5 ui-monospace, Menlo, Consolas, monospace; }
@media (max-width: 600px) { body { padding: 14px; } .number { white-space: normal; }
  .headline div:first-child { flex-basis: 100%; } }
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
.wrong { color: #a11; font-weight: 600; } .correct { color: #2c6e2c; font-weight: 600; }
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
    heading = f"<h3>{text(title)}</h3>" if title else ""
    return f'{heading}<table class="facts">{rows}</table>'


def columns(names, rows):
    """A table with a line of names; columns of numbers are aligned on the right.

    Args:
        names: of the columns.
        rows: iterable of as many values each.
    """
    rows = [[str(value) for value in row] for row in rows]
    right = [
        place > 0 and bool(rows) and all(_is_number(row[place]) for row in rows)
        for place in range(len(names))
    ]

    def line(tag, cells):
        shown = "".join(
            f"<{tag}{' class=right' if aligned else ''}>{cell}</{tag}>"
            for cell, aligned in zip(cells, right, strict=True)
        )
        return f"<tr>{shown}</tr>"

    body = "".join(
        line("td", [f"<code>{_breakable(value)}</code>" for value in row])
        for row in rows
    )
    head = line("th", [text(name) for name in names])
    return f'<div class="wide"><table>{head}{body}</table></div>'


def headline(figures):
    """The figures that matter most, the first one large.

    Args:
        figures: list of (value, what it is).
    """
    shown = "".join(
        f"<div><b>{text(value)}</b><span>{text(what)}</span></div>"
        for value, what in figures
    )
    return f'<div class="headline">{shown}</div>'


def images(pictures):
    """A grid of [(caption, uint8 `[h, w, 3]`)]; empty where there are none."""
    shown = []
    for caption, pixels in pictures:
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, "JPEG", quality=90)
        tag = image(content.getvalue(), caption)
        shown.append(f"<figure>{tag}<figcaption>{text(caption)}</figcaption></figure>")
    return f'<div class="images">{"".join(shown)}</div>' if shown else ""


def image(jpeg, what):
    """The bytes of a JPEG as HTML; `what` is its text for those who do not see it."""
    data = base64.b64encode(jpeg).decode()
    return f'<img alt="{text(what)}" src="data:image/jpeg;base64,{data}">'


def _is_number(value):
    return value.replace(",", "").replace(".", "", 1).lstrip("-").isdigit()


def _breakable(value):
    """Text that narrow pages break after underscores and commas."""
    return text(value).replace("_", "_<wbr>").replace(",", ",<wbr>")


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
