"""The report of a run: one page that loads no other file."""

import re
import shlex

from plsc_tf.evaluation import page
from plsc_tf.flags.option import options_of
from plsc_tf.jobs import results
from plsc_tf.options.settings import ALL, Settings
from plsc_tf.storage import files

NAME = "report.html"
# The page of the evaluation card, which the next command writes.
CARD = "card/card.html"
# Files that the page links to if they exist.
LINKED = (CARD, "results.json", "metrics.csv", "flags.cfg")
# Further results, which the closing table leaves out.
_DETAILS = (
    "loss_type",
    "num_classes",
    "sample_rate",
    "seconds_per_step",
    "seconds_per_epoch",
    "export_dir",
)
# user:password@ in an address.
_PASSWORD = re.compile(r"(://)[^/@\s]+@")


def to_html(settings: Settings, outcome: dict, facts: dict) -> bytes:
    """Returns the page.

    Args:
        settings: of the run.
        outcome: the content of results.json.
        facts: {"network", "data", "memory", "environment": {name: text},
            "checkpoints": [(name, step, MB)], "starts": [{...}],
            "charts": [(caption, SVG)], "images": [(label, JPEG)],
            "written": those of `LINKED` that exist}.
    """
    folder = settings.checkpoints.model_save_dir
    rows = list(results.rows(outcome))
    details = {name: outcome.get(name) for name in _DETAILS}
    rows += [
        (name.replace("_", " "), results.text(value))
        for name, value in details.items()
        if value is not None
    ]
    command, card_command = results.next_command(settings, outcome), ""
    if ".evaluate " in command:
        option = f"--card_dir={files.join(folder, CARD.partition('/')[0])}"
        card_command = f"{command} {shlex.quote(option)}"
    options = list(_options(settings))
    return page.render(
        "run_report.html",
        title=f"Training of {settings.model.model_name} on "
        f"{settings.dataset.dataset_name}",
        folder=folder,
        headline=_headline(rows),
        results=rows,
        command=command,
        card_command=card_command,
        card=CARD,
        options=[(name, value) for name, value, _ in options],
        changed_options=[row for row in options if row[1] != row[2]],
        start_rows=[_start(start) for start in facts["starts"]],
        **facts,
    )


def _headline(rows):
    """[(value, name)], accuracies of evaluations first, deviations in the names."""
    names = ("training_accuracy", "loss", "steps", "images/s")
    figures = [row for row in rows if ": " in row[0] or row[0] == "test accuracy"]
    figures += [row for name in names for row in rows if row[0] == name]
    headline = []
    for name, value in figures:
        value, *remark = re.split(r" (?=[±(])", value, maxsplit=1)
        name = name.replace("_", " ")
        headline.append((value, ", ".join([*remark, name])))
    return headline


def _options(settings):
    """Yields (name, value, default) of all options."""
    default = Settings()
    for name in ALL:
        group, of_default = getattr(settings, name), getattr(default, name)
        for option in options_of(type(of_default)):
            yield (
                option.name,
                _shown(option, getattr(group, option.name)),
                _shown(option, getattr(of_default, option.name)),
            )


def _shown(option, value):
    """An option's value as text; a secret shows as ***, also within an address."""
    return _PASSWORD.sub(r"\1***@", option.format(value)) or "(empty)"


def _start(start):
    changes = start.get("changed", {}).items()
    changed = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes)
    names = ("time", "step", "replicas", "workers")
    return *(start.get(name, "") for name in names), changed
