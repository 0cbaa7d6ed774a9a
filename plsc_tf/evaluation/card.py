"""The evaluation card: card.json, and card.html, which needs nothing beside itself."""

import dataclasses
import json

from plsc_tf.evaluation import names, page

VERSION = 1
# What a page begins with, the first that a set has.
MAIN = ("accuracy", "rank_1", "top_1", "tar@far=1e-04", "eer")


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
        page.headline(_headline(reports[0])) if reports else "",
        _overview(reports),
        f'<p class="quiet">Values in brackets are {draws["confidence"]:.0%} confidence '
        f"intervals: {page.text(draws['method'])}, {draws['samples']:,} draws, seed "
        f"{draws['seed']}. n/a: the data cannot support the figure.</p>",
        *(_section(report) for report in reports),
        "<h2>Model and data</h2>",
        page.table("Model", _without_hashes(card["model"])),
        page.table("Training data", _without_hashes(card["data"])),
        page.table("Fingerprints, SHA-256", _hashes(card, reports)),
    ]
    return page.document(title, parts)


def _headline(report):
    """(value, what it is): the main figure of a set, and its thresholds."""
    name = next((name for name in MAIN if name in report.figures), None)
    shown = []
    if name:
        figure = report.figures[name]
        what = f"{names.short(name)} on {report.name}"
        if figure.std is not None:
            figure, what = (
                dataclasses.replace(figure, std=None),
                f"± {figure.std:.4f}, {what}",
            )
        shown.append((_value(figure, digits=4), what))
    threshold = report.threshold
    if threshold:
        at = _rate(threshold)
        if threshold.get("cosine") is None:
            shown.append(("n/a", f"threshold at {at}"))
        else:
            shown.append(_both_scales(threshold, "", f"threshold at {at}"))
    if "best_cosine" in threshold:
        shown.append(_both_scales(threshold, "best_", "most accurate threshold"))
    return shown


def _both_scales(threshold, prefix, what):
    """(value, what it is) of a threshold: one figure, so that a line keeps it whole."""
    cosine, squared = (
        f"{threshold[prefix + scale]:.4f}" for scale in ("cosine", "squared_l2")
    )
    return f"{cosine} / {squared}", f"{what}, cosine / squared distance"


def _overview(reports):
    """One line for each set, where there are several."""
    if len(reports) < 2:
        return ""
    rows = []
    for report in reports:
        name = next((name for name in MAIN if name in report.figures), None)
        main = f"{_value(report.figures[name], 4)} {names.short(name)}" if name else ""
        one = report.threshold
        scales = [
            f"{one[scale]:.4f}" if one.get(scale) is not None else "n/a"
            for scale in ("cosine", "squared_l2")
        ]
        at = [*scales, _rate(one)] if one else ["", "", ""]
        rows.append((report.name, main, *at))
    columns = ("set", "figure", "threshold: cosine", "squared distance", "at")
    return page.columns(columns, rows)


def _rate(threshold):
    kind, rate = ("FAR", "far") if "far" in threshold else ("FPIR", "fpir")
    return f"{kind} {threshold[rate]:g}"


def _value(figure, digits=5):
    if figure.value is None:
        return "n/a"
    text = f"{figure.value:.{digits}f}"
    return text if figure.std is None else f"{text} ± {figure.std:.{digits}f}"


def _without_hashes(values):
    return {what: value for what, value in values.items() if "sha256" not in what}


def _hashes(card, reports):
    """{what: SHA-256} of the model, its data and each set."""
    found = {
        f"{of} {what.replace('_sha256', '').replace('sha256', '')}".strip(): value
        for of in ("model", "data")
        for what, value in card[of].items()
        if "sha256" in what
    }
    return found | {f"set {one.name}": one.sha256 for one in reports if one.sha256}


def _section(report):
    parts = [
        f"<h2>{page.text(report.name)}</h2>",
        _counts(report),
        _threshold(report.threshold),
        _figures(report),
        page.charts([(chart.caption, chart.svg()) for chart in report.charts]),
        _duplicates(report.duplicates),
        _worst(report),
    ]
    return "\n".join(part for part in parts if part)


def _counts(report):
    counted = ", ".join(f"{count:,} {what}" for what, count in report.counts.items())
    return f"<p>{page.text(report.kind.capitalize())}: {page.text(counted)}.</p>"


def _figures(report):
    rows = []
    for name, figure in report.figures.items():
        rows.append(_figure(names.long(name), figure))
        if name == "best_threshold":
            rows.append(_figure("the same as cosine", figure.as_cosine()))
    basis = f'<p class="quiet">Intervals: {page.text(report.basis)}.</p>'
    return (
        '<div class="wide"><table><tr><th>figure</th><th>value</th>'
        "<th>95% interval, or remark</th></tr>"
        + "".join(rows)
        + "</table></div>"
        + (basis if report.basis else "")
    )


def _figure(what, figure):
    remark = f'<span class="quiet">{page.text(figure.note)}</span>'
    if figure.low is not None:
        remark = f"[{figure.low:.5f}, {figure.high:.5f}] {remark}"
    return (
        f'<tr><td>{page.text(what)}</td><td class="number">{_value(figure)}</td>'
        f'<td class="number remark">{remark}</td></tr>'
    )


def _threshold(threshold):
    if not threshold:
        return ""
    head = f"<h3>Threshold at {_rate(threshold)}</h3>"
    if threshold.get("cosine") is None:
        return head + f"<p>n/a: {page.text(threshold.get('note', ''))}.</p>"
    tar = threshold.get("tar", threshold.get("tpir"))
    cosine, squared = (
        f"<b>{threshold[scale]:.5f}</b>{_between(threshold, scale)}"
        for scale in ("cosine", "squared_l2")
    )
    return head + (
        f"<p>Accept when the cosine is more than {cosine}, which is a squared distance "
        f"of the normalized embeddings of less than {squared}. It accepts {tar:.2%} of "
        "those who should be.</p>"
    )


def _between(threshold, scale):
    if f"{scale}_low" not in threshold:
        return ""
    return f" [{threshold[f'{scale}_low']:.5f}, {threshold[f'{scale}_high']:.5f}]"


def _duplicates(found):
    if not found:
        return ""
    rows = [
        f"<tr><td>{page.text(other)}</td><td>{page.text(_overlap(one))}</td></tr>"
        for other, one in found.items()
    ]
    return (
        "<h3>Images that are also elsewhere</h3><table><tr><th>compared with</th>"
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
    threshold, parts = report.threshold, []
    by = f"the threshold at {_rate(threshold)}" if threshold else ""
    if threshold.get("cosine") is None:
        by = "the most accurate threshold"
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
            parts.append(
                f'<h3>{title}</h3><p class="quiet">Judged by {by}.</p>'
                f'<div class="pairs">{"".join(shown)}</div>'
            )
    return "".join(parts)


def _pair(one, pictures):
    images = ""
    if pictures:
        tags = (
            page.image(picture, one[side])
            for side, picture in zip(("left", "right"), pictures, strict=True)
        )
        images = f"<div>{''.join(tags)}</div>"
    wrong = one["accepted"] == (one["kind"] == "false accept")
    said = "accepted" if one["accepted"] else "rejected"
    sides = f"{page.text(one['left'])}<br>{page.text(one['right'])}"
    return (
        f'<div class="pair">{images}<p>cosine {one["cosine"]:.4f}, '
        f'<span class="{"wrong" if wrong else "correct"}">{said}</span></p>'
        f'<p class="quiet">{sides}</p></div>'
    )
