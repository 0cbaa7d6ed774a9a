"""The evaluation card: card.json, and card.html, which loads no other file."""

import json
from collections.abc import Sequence

from plsc_tf.evaluation import names, page
from plsc_tf.evaluation.bootstrap import CONFIDENCE, Resampling
from plsc_tf.evaluation.reports import SetReport

VERSION = 1


def build(
    model: dict, data: dict, reports: Sequence[SetReport], resampling: Resampling
) -> dict:
    """Returns the card as plain values.

    Args:
        model: {name: text or number} about the model and its checkpoint.
        data: the same about the training data.
        reports: of the sets, in the order of the page.
        resampling: the draws behind the intervals.
    """
    return {
        "version": VERSION,
        "model": model,
        "data": data,
        "bootstrap": {
            "samples": resampling.samples,
            "seed": resampling.seed,
            "confidence": CONFIDENCE,
            "method": "percentiles over draws of identities, with replacement",
        },
        "sets": {report.name: report.as_dict() for report in reports},
    }


def to_json(card: dict) -> bytes:
    """Returns the content of card.json."""
    return (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode()


def to_html(card: dict, reports: Sequence[SetReport]) -> bytes:
    """Returns the content of card.html."""
    return page.render(
        "card.html",
        title=f"Evaluation of {card['model'].get('model_name', 'saved embeddings')}",
        card=card,
        reports=reports,
        headline=_headline(reports[0]) if reports else [],
        overview=[_overview(report) for report in reports],
        hashes=_hashes(card, reports),
        between=_with_interval,
        figures=_figures,
        svgs=lambda report: [(one.caption, one.svg()) for one in report.charts],
        without_hashes=lambda values: {
            name: value for name, value in values.items() if "sha256" not in name
        },
    )


def _headline(report):
    """[(value, name)]: the main figure of a set, and its thresholds."""
    threshold, headline = report.threshold, []
    if report.main:
        figure = report.figures[report.main]
        value, *deviation = figure.text(digits=4).partition(" ± ")
        name = f"{names.short(report.main)} on {report.name}"
        deviation = "".join(deviation).strip()
        headline.append((value, f"{deviation}, {name}" if deviation else name))
    if threshold and threshold.get("cosine") is None:
        headline.append(("n/a", f"threshold at {report.rate}"))
    elif threshold:
        headline.append(_both_scales(threshold, "", f"threshold at {report.rate}"))
    if "best_cosine" in threshold:
        headline.append(_both_scales(threshold, "best_", "most accurate threshold"))
    return headline


def _both_scales(threshold, prefix, name):
    """(value, name) of a threshold: one figure, so that it stays on one line."""
    cosine, squared = threshold[f"{prefix}cosine"], threshold[f"{prefix}squared_l2"]
    return f"{cosine:.4f} / {squared:.4f}", f"{name}, cosine / squared distance"


def _overview(report):
    """The row of a set in the table of all sets."""
    main, at = "", ["", "", ""]
    if report.main:
        main = f"{report.figures[report.main].text(4)} {names.short(report.main)}"
    if report.threshold:
        values = [report.threshold.get(scale) for scale in ("cosine", "squared_l2")]
        at = ["n/a" if value is None else f"{value:.4f}" for value in values]
        at.append(report.rate)
    return report.name, main, *at


def _figures(report):
    """Yields (name, `Figure`), the best threshold on both scales."""
    for name, figure in report.figures.items():
        yield names.long(name), figure
        if name == "best_threshold":
            yield "the same as cosine", figure.as_cosine()


def _with_interval(threshold, scale):
    text = f"{threshold[scale]:.5f}"
    if f"{scale}_low" not in threshold:
        return text
    low, high = threshold[f"{scale}_low"], threshold[f"{scale}_high"]
    return f"{text} [{low:.5f}, {high:.5f}]"


def _hashes(card, reports):
    """{name: SHA-256} of the model, its data and each set."""
    hashes = {
        f"{of} {name.replace('_sha256', '').replace('sha256', '')}".strip(): value
        for of in ("model", "data")
        for name, value in card[of].items()
        if "sha256" in name
    }
    return hashes | {f"set {one.name}": one.sha256 for one in reports if one.sha256}
