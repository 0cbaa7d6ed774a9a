"""The evaluation card: card.json, and card.html, which needs nothing beside itself."""

import base64
import json

from plsc_tf.evaluation import names, page

VERSION = 1


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
        f'<p class="quiet">Values in brackets are {draws["confidence"]:.0%} confidence '
        f"intervals: {page.text(draws['method'])}, {draws['samples']:,} draws, seed "
        f"{draws['seed']}. n/a: the data cannot support the figure.</p>",
        page.table("Model", card["model"]),
        page.table("Training data", card["data"]),
        *(_section(report) for report in reports),
    ]
    return page.document(title, parts)


def _section(report):
    parts = [
        f"<h2>{page.text(report.name)}</h2>",
        _counts(report),
        _figures(report),
        _threshold(report.threshold),
        page.charts(report.charts),
        _duplicates(report.duplicates),
        _worst(report),
    ]
    return "\n".join(part for part in parts if part)


def _counts(report):
    counted = ", ".join(f"{count:,} {what}" for what, count in report.counts.items())
    text = f"<p>{page.text(report.kind.capitalize())}: {page.text(counted)}.</p>"
    if report.sha256:
        text += f'<p class="quiet">SHA-256 <code>{page.text(report.sha256)}</code></p>'
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
            f"<tr><td>{page.text(names.long(name))}</td>"
            f'<td class="number">{value}</td><td class="number">{interval}</td>'
            f'<td class="quiet">{page.text(figure.note)}</td></tr>'
        )
    basis = f'<p class="quiet">Intervals: {page.text(report.basis)}.</p>'
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
        return head + f"<p>n/a: {page.text(threshold.get('note', ''))}.</p>"
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


def _duplicates(found):
    if not found:
        return ""
    rows = [
        f"<tr><td>{page.text(other)}</td><td>{page.text(_overlap(one))}</td></tr>"
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
            f'<img alt="{page.text(one[side])}" src="data:image/jpeg;base64,'
            f'{base64.b64encode(picture).decode()}">'
            for side, picture in zip(("left", "right"), pictures, strict=True)
        )
        images = f"<div>{''.join(tags)}</div>"
    wrong = one["accepted"] == (one["kind"] == "false accept")
    said = "accepted" if one["accepted"] else "rejected"
    sides = f"{page.text(one['left'])}<br>{page.text(one['right'])}"
    return (
        f'<div class="pair">{images}<p>cosine {one["cosine"]:.4f}, '
        f'<span class="{"wrong" if wrong else "right"}">{said}</span></p>'
        f'<p class="quiet">{sides}</p></div>'
    )
