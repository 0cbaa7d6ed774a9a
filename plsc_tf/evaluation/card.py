"""The evaluation card: card.json, and card.html, which needs nothing beside itself."""

import base64
import html
import json

from plsc_tf.evaluation import names

VERSION = 1
_STYLE = """
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


def build(model, data, reports, resampling):
    """The card as plain values.

    Args:
        model: {what: text or number} about the model and its checkpoint.
        data: the same about the training data.
        reports: list of `SetReport`, in the order they are shown.
        resampling: the `Resampling` behind the intervals.

    Returns:
        A dict for card.json; the sets by name.
    """
    return {
        "version": VERSION,
        "model": model,
        "data": data,
        "bootstrap": {
            "samples": resampling.samples,
            "seed": resampling.seed,
            "confidence": 0.95,
            "method": "percentiles over draws of identities, with replacement",
        },
        "sets": {report.name: report.as_dict() for report in reports},
    }


def to_json(card):
    """The bytes of card.json."""
    return (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode()


def to_html(card, reports):
    """The bytes of card.html."""
    title = f"Evaluation of {card['model'].get('model_name', 'saved embeddings')}"
    draws = card["bootstrap"]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_text(title)}</h1>",
        f'<p class="quiet">Values in brackets are {draws["confidence"]:.0%} confidence '
        f"intervals: {_text(draws['method'])}, {draws['samples']:,} draws, seed "
        f"{draws['seed']}. n/a: the data cannot support the figure.</p>",
        _table_of("Model", card["model"]),
        _table_of("Training data", card["data"]),
        *(_section(report) for report in reports),
        "</body></html>",
    ]
    return ("\n".join(part for part in parts if part) + "\n").encode()


def _section(report):
    parts = [
        f"<h2>{_text(report.name)}</h2>",
        _counts(report),
        _figures(report),
        _threshold(report.threshold),
        _charts(report),
        _duplicates(report.duplicates),
        _worst(report),
    ]
    return "\n".join(part for part in parts if part)


def _counts(report):
    counted = ", ".join(f"{count:,} {what}" for what, count in report.counts.items())
    text = f"<p>{_text(report.kind.capitalize())}: {_text(counted)}.</p>"
    if report.sha256:
        text += f'<p class="quiet">SHA-256 <code>{_text(report.sha256)}</code></p>'
    return text


def _figures(report):
    rows = []
    for name, figure in report.figures.items():
        value = "n/a" if figure.value is None else f"{figure.value:.5f}"
        if figure.std is not None:
            value += f" ± {figure.std:.5f}"
        interval = ""
        if figure.low is not None:
            interval = f"[{figure.low:.5f}, {figure.high:.5f}]"
        rows.append(
            f"<tr><td>{_text(names.long(name))}</td>"
            f'<td class="number">{value}</td><td class="number">{interval}</td>'
            f'<td class="quiet">{_text(figure.note)}</td></tr>'
        )
    basis = f'<p class="quiet">Intervals: {_text(report.basis)}.</p>'
    return (
        '<div class="wide"><table><tr><th>figure</th><th>value</th>'
        "<th>95 % interval</th><th>remark</th></tr>"
        + "".join(rows)
        + "</table></div>"
        + (basis if report.basis else "")
    )


def _threshold(threshold):
    if not threshold:
        return ""
    kind, rate = ("FAR", "far") if "far" in threshold else ("FPIR", "fpir")
    head = f"<h3>Threshold at {kind} {threshold[rate]:g}</h3>"
    if threshold.get("cosine") is None:
        return head + f"<p>n/a: {_text(threshold.get('note', ''))}.</p>"
    interval = ""
    if "cosine_low" in threshold:
        low, high = threshold["cosine_low"], threshold["cosine_high"]
        interval = f" [{low:.5f}, {high:.5f}]"
    tar = threshold.get("tar", threshold.get("tpir"))
    return head + (
        f"<p>Accept when the cosine is more than <b>{threshold['cosine']:.5f}</b>"
        f"{interval}, which is a squared distance of the normalised embeddings of less "
        f"than <b>{threshold['squared_l2']:.5f}</b>. It accepts {tar:.2%} of those who "
        "should be.</p>"
    )


def _charts(report):
    figures = [
        f"<figure>{chart}<figcaption>{_text(caption)}</figcaption></figure>"
        for caption, chart in report.charts
    ]
    return f'<div class="charts">{"".join(figures)}</div>' if figures else ""


def _duplicates(found):
    if not found:
        return ""
    rows = [
        f"<tr><td>{_text(other)}</td><td>{_text(_overlap(one))}</td></tr>"
        for other, one in found.items()
    ]
    return (
        "<h3>Pictures that are also elsewhere</h3><table><tr><th>compared with</th>"
        f"<th>found</th></tr>{''.join(rows)}</table>"
    )


def _overlap(one):
    if "note" in one:
        return one["note"]
    text = (
        f"{one['same_bytes']:,} of the same bytes, {one['same_pixels']:,} of the same "
        f"pixels, among {one['pictures']:,} pictures"
    )
    if one.get("first"):
        text += ": " + "; ".join(one["first"])
    return text


def _worst(report):
    parts = []
    for kind, title in (
        ("false accept", "Two people, most alike"),
        ("false reject", "One person, least alike"),
    ):
        shown = [
            _pair(one, report.pictures.get(row))
            for row, one in enumerate(report.worst)
            if one["kind"] == kind
        ]
        if shown:
            parts.append(f'<h3>{title}</h3><div class="pairs">{"".join(shown)}</div>')
    return "".join(parts)


def _pair(one, pictures):
    images = ""
    if pictures:
        tags = (
            f'<img alt="{_text(one[side])}" src="data:image/jpeg;base64,'
            f'{base64.b64encode(picture).decode()}">'
            for side, picture in zip(("left", "right"), pictures, strict=True)
        )
        images = f"<div>{''.join(tags)}</div>"
    wrong = one["accepted"] == (one["kind"] == "false accept")
    said = "accepted" if one["accepted"] else "rejected"
    return (
        f'<div class="pair">{images}<p>cosine {one["cosine"]:.4f}, '
        f'<span class="{"wrong" if wrong else "right"}">{said}</span></p>'
        f'<p class="quiet">{_text(one["left"])}<br>{_text(one["right"])}</p></div>'
    )


def _table_of(title, values):
    if not values:
        return ""
    rows = "".join(
        f"<tr><th>{_text(what.replace('_', ' '))}</th><td><code>{_text(value)}</code>"
        "</td></tr>"
        for what, value in values.items()
    )
    return f"<h3>{title}</h3><table>{rows}</table>"


def _text(value):
    return html.escape(str(value))
