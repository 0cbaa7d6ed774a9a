"""The evaluation card: card.json and a self-contained card.html."""

import json
import math
from collections.abc import Sequence

from plsc_tf.evaluation import page, set_charts
from plsc_tf.evaluation.bootstrap import CONFIDENCE
from plsc_tf.evaluation.report import Options, short_name
from plsc_tf.evaluation.set_report import SetReport
from plsc_tf.requirements import require

# The version of docs/card.schema.json. Additional keys do not change it.
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
    draws = {"samples": options.samples, "seed": options.seed, "confidence": CONFIDENCE}
    draws["method"] = "standard errors over draws of identities, with replacement"
    sets = {report.name: report.as_dict() for report in reports}
    facts = {"version": VERSION, "model": model, "data": data}
    return {**facts, "bootstrap": draws, "sets": sets}


def check(card: dict) -> None:
    """Raises one of several errors if parts of a card.json do not have their form."""
    parts = card["model"], card["data"], card["sets"], card.get("options", {})
    require(all(isinstance(part, dict) for part in parts), "Parts must be objects")
    for entry in card["sets"].values():
        set_charts.check(entry)
        values = [figure["value"] for figure in {**entry["figures"]}.values()]
        known = [value for value in values if value is not None]
        require(all(map(math.isfinite, known)), "A figure must be a number or null")


def to_json(card: dict) -> bytes:
    """Returns the content of card.json."""
    text = json.dumps(card, indent=1, ensure_ascii=False) + "\n"
    # File names may contain bytes that are not UTF-8.
    return text.encode(errors="backslashreplace")


def to_html(card: dict, reports: Sequence[SetReport]) -> bytes:
    """Returns the content of card.html."""
    title = f"Evaluation of {card['model'].get('model_name', 'saved embeddings')}"
    used = {"short_name": short_name, "charts_of": set_charts.all_of}
    return page.render("card.html", title=title, card=card, reports=reports, **used)
