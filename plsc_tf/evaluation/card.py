"""The evaluation card: card.json and a self-contained card.html."""

import json
from collections.abc import Sequence

from plsc_tf.evaluation import page
from plsc_tf.evaluation.bootstrap import CONFIDENCE
from plsc_tf.evaluation.report import Options, long_name, short_name
from plsc_tf.evaluation.set_report import SetReport

VERSION = 1


def build(
    model: dict, data: dict, reports: Sequence[SetReport], options: Options
) -> dict:
    """Returns the card as JSON-serializable values.

    Args:
        model: {name: text or number}, facts about the model and its checkpoint.
        data: {name: text or number}, facts about the training data.
        reports: the reports of the evaluated sets, in the order of the page.
        options: the options of the reports.
    """
    return {
        "version": VERSION,
        "model": model,
        "data": data,
        "bootstrap": {
            "samples": options.samples,
            "seed": options.seed,
            "confidence": CONFIDENCE,
            "method": "standard errors over draws of identities, with replacement",
        },
        "sets": {report.name: report.as_dict() for report in reports},
    }


def to_json(card: dict) -> bytes:
    """Returns the content of card.json."""
    text = json.dumps(card, indent=1, ensure_ascii=False) + "\n"
    # File names may contain bytes that are not UTF-8.
    return text.encode(errors="backslashreplace")


def to_html(card: dict, reports: Sequence[SetReport]) -> bytes:
    """Returns the content of card.html."""
    return page.render(
        "card.html",
        title=f"Evaluation of {card['model'].get('model_name', 'saved embeddings')}",
        card=card,
        reports=reports,
        headline=_headline(reports[0]) if reports else [],
        long_name=long_name,
        short_name=short_name,
        svgs=lambda report: [(chart.caption, chart.svg()) for chart in report.charts],
    )


def _headline(report):
    """Returns [(value, name)] for a set's main metric and its thresholds."""
    headline, at = [], report.threshold
    if report.main:
        value, _, deviation = report.figures[report.main].text(4).partition(" ± ")
        name = f"{short_name(report.main)} on {report.name}"
        headline.append((value, f"{deviation}, {name}" if deviation else name))
    names = {"": f"threshold at {report.rate}", "best_": "most accurate threshold"}
    for prefix, name in names.items():
        if f"{prefix}cosine" in at:
            cosine, squared = at[f"{prefix}cosine"], at[f"{prefix}squared_l2"]
            both = "n/a" if cosine is None else f"{cosine:.4f} / {squared:.4f}"
            headline.append((both, f"{name}, cosine / squared distance"))
    return headline
