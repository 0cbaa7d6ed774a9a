"""The report of a run: one page that loads nothing."""

import re
import shlex

from plsc_tf.evaluation import page
from plsc_tf.flags.option import options_of
from plsc_tf.jobs import results
from plsc_tf.options.settings import ALL, Settings
from plsc_tf.storage import files

NAME = "report.html"
# The folder that the next command writes the evaluation card to, and its page.
CARD = ("card", "card/card.html")
# What the page links to, where it is there.
LINKED = (CARD[1], "results.json", "metrics.csv", "flags.cfg")
# user:password@ in an address.
_PASSWORD = re.compile(r"(://)[^/@\s]+@")


def to_html(settings, outcome, told):
    """The bytes of the page.

    Args:
        settings: the `Settings` of the run.
        outcome: of `run.train`, what results.json holds.
        told: {"network", "data", "memory", "environment": {what: text},
            "checkpoints": [(name, step, bytes)], "starts": [{...}],
            "charts": [(caption, SVG)], "images": [(label, uint8 [h, w, 3])],
            "written": those of `LINKED` that are there}.
    """
    model, data = settings.model.model_name, settings.dataset.dataset_name
    starts = told["starts"]
    begun = f"Begun {starts[0].get('time')} (UTC)." if starts else ""
    folder = page.text(settings.checkpoints.model_save_dir)
    parts = [
        f'<p class="quiet">{folder}. {begun}</p>',
        page.headline(list(_headline(outcome))),
        _next(settings, outcome, told["written"]),
        "<h2>Results</h2>",
        page.columns(("figure", "value"), _results(outcome)),
        "<h2>Curves</h2>",
        page.charts(told["charts"]) or "<p>There are no figures.</p>",
        _images(told["images"]),
        "<h2>Options</h2>",
        "<p>Those that differ from their defaults:</p>",
        page.columns(("option", "value", "default"), _changed(settings)),
        "<details><summary>All options</summary>",
        page.columns(("option", "value"), _options(settings)),
        "</details>",
        "<h2>Network, data and machine</h2>",
        page.table("Size", told["network"]),
        page.table("Data", told["data"]),
        page.table("Memory", told["memory"]),
        page.table("Environment", told["environment"]),
        "<h2>Checkpoints</h2>",
        page.columns(
            ("name", "step", "MB"),
            [(name, step, f"{n / 1e6:.1f}") for name, step, n in told["checkpoints"]],
        ),
        "<h2>Starts</h2>",
        f"<p>{_resumptions(starts)}</p>",
        page.columns(
            ("time", "after step", "replicas", "workers", "changed"), _starts(starts)
        ),
    ]
    return page.document(f"Training of {model} on {data}", parts)


def _headline(outcome):
    """(value, what it is), the figure that matters most first."""
    for name, one in (outcome.get("verification") or {}).items():
        text = f"± {one['std']:.4f}, verification accuracy on {name}"
        yield f"{one['accuracy']:.4f}", text
    for name, one in (outcome.get("raw_pixels") or {}).items():
        yield f"{one['accuracy']:.4f}", f"comparing raw pixels of {name}"
    if outcome.get("test"):
        test = outcome["test"]
        yield f"{test['accuracy']:.4f}", f"accuracy on {test['images']:,} test images"
    if outcome.get("training_accuracy") is not None:
        yield f"{outcome['training_accuracy']:.4f}", "training accuracy"
    if outcome.get("loss") is not None:
        yield f"{outcome['loss']:.4g}", "loss of the last epoch"
    if outcome.get("steps") is not None:
        yield f"{outcome['steps']:,}", "steps"
    if outcome.get("images_per_second"):
        resumed = " since the resume" if " " in results.speed(outcome) else ""
        yield f"{outcome['images_per_second']:.4g}", f"images/s{resumed}"


def _next(settings, outcome, written):
    """The next command, and links to what lies next to the page."""
    command = results.next_command(settings, outcome)
    lines = []
    if ".evaluate " in command:
        folder = files.join(settings.checkpoints.model_save_dir, CARD[0])
        command += f" {shlex.quote(f'--card_dir={folder}')}"
        lines.append(
            f"Next, {'' if CARD[1] in written else 'to make '}the evaluation card, "
            f'<a href="{CARD[1]}">{CARD[1]}</a>, with threshold, intervals and the '
            f"worst pairs:<pre>{page.text(command)}</pre>"
        )
    elif command:
        lines.append(f"Next:<pre>{page.text(command)}</pre>")
    links = [f'<a href="{name}">{name}</a>' for name in written if name != CARD[1]]
    if links:
        lines.append(f"In this folder: {', '.join(links)}.")
    return "".join(f"<div>{line}</div>" for line in lines)


def _images(images):
    """What was fed, as a contact sheet."""
    if not images:
        return ""
    sheet = page.images([(f"class {label}", pixels) for label, pixels in images])
    return (
        "<h2>Input</h2><p>Images of the first step of the last process, as the "
        f"network gets them: framed, resized and augmented.</p>{sheet}"
    )


def _results(outcome):
    for name, value in outcome.items():
        if value is None or name == "images_per_second_steps":
            continue
        if name == "images_per_second":
            yield "images per second", results.speed(outcome)
        elif name == "verification":
            for what, found in value.items():
                yield (
                    f"verification accuracy, {what}",
                    f"{found['accuracy']:.4f} ± {found['std']:.4f}",
                )
        elif name == "raw_pixels":
            for what, found in value.items():
                text = f"{found['accuracy']:.4f} ± {found['std']:.4f}"
                yield f"comparing raw pixels, {what}", text
        elif isinstance(value, dict):
            for what, found in value.items():
                yield f"{name} {what}".replace("_", " "), _number(found)
        else:
            yield name.replace("_", " "), _number(value)


def _number(value):
    return f"{value:.5g}" if isinstance(value, float) else value


def _changed(settings):
    default = Settings()
    for group, item in _items():
        value = getattr(getattr(settings, group), item.name)
        before = getattr(getattr(default, group), item.name)
        if value != before:
            yield item.name, _shown(item, value), _shown(item, before)


def _options(settings):
    for group, item in _items():
        yield item.name, _shown(item, getattr(getattr(settings, group), item.name))


def _items():
    for group in ALL:
        for item in options_of(type(getattr(Settings(), group))):
            yield group, item


def _shown(item, value):
    """An option's value as text; a secret shows as ***, also within an address."""
    return _PASSWORD.sub(r"\1***@", item.format(value)) or "(empty)"


def _starts(starts):
    for one in starts:
        names = ("time", "step", "replicas", "workers")
        changes = one.get("changed", {}).items()
        changed = ", ".join(f"{name} {old} -> {new}" for name, (old, new) in changes)
        yield *(one.get(name, "") for name in names), changed


def _resumptions(starts):
    count = sum(1 for one in starts if one["step"])
    if not count:
        return "The run was never resumed."
    return f"The run was resumed {count} time{'s' if count > 1 else ''}."
