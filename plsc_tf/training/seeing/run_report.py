"""The report of a run: one page that needs nothing beside itself."""

import re

from plsc_tf.evaluation import page
from plsc_tf.options import options_of
from plsc_tf.settings import ALL, Settings

NAME = "report.html"
# user:password@ in an address.
_PASSWORD = re.compile(r"(://)[^/@\s]+@")


def to_html(settings, outcome, told):
    """The bytes of the page.

    Args:
        settings: the `Settings` of the run.
        outcome: of `run.train`, what results.json holds.
        told: {"data": ..., "memory": ..., "environment": ...: {what: text},
            "checkpoints": [(name, step, bytes)], "starts": [{...}],
            "charts": [(caption, SVG)]}.
    """
    model, data = settings.model.model_name, settings.dataset.dataset_name
    starts = told["starts"]
    last = f"Begun {starts[0]['time']} (UTC)." if starts else ""
    parts = [
        f'<p class="quiet">{page.text(settings.storage.model_save_dir)}. {last}</p>',
        "<h2>Results</h2>",
        _columns(("figure", "value"), _results(outcome)),
        "<h2>Curves</h2>",
        page.charts(told["charts"])
        or "<p>There are no figures: metrics_files was off.</p>",
        "<h2>Configuration</h2>",
        "<p>What is not as by default:</p>",
        _columns(("option", "value", "default"), _changed(settings)),
        "<details><summary>All options</summary>",
        _columns(("option", "value"), _options(settings)),
        "</details>",
        "<h2>Data and machine</h2>",
        page.table("Data", told["data"]),
        page.table("Memory", told["memory"]),
        page.table("Environment", told["environment"]),
        "<h2>Checkpoints</h2>",
        _columns(
            ("name", "step", "MB"),
            [(name, step, f"{n / 1e6:.1f}") for name, step, n in told["checkpoints"]],
        ),
        "<h2>Starts</h2>",
        f"<p>{_resumptions(starts)}</p>",
        _columns(("time", "after step", "replicas", "workers"), _starts(starts)),
    ]
    return page.document(f"Training of {model} on {data}", parts)


def _results(outcome):
    for name, value in outcome.items():
        if value is None:
            continue
        if name == "verification":
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
        yield tuple(one.get(name, "") for name in ("time", "step", "replicas")) + (
            one.get("workers", ""),
        )


def _resumptions(starts):
    count = sum(1 for one in starts if one["step"])
    if not count:
        return "The run was never resumed."
    return f"The run was resumed {count} time{'s' if count > 1 else ''}."


def _columns(names, rows):
    head = "".join(f"<th>{page.text(name)}</th>" for name in names)
    lines = "".join(
        "<tr>"
        + "".join(f"<td><code>{_breakable(value)}</code></td>" for value in row)
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><tr>{head}</tr>{lines}</table></div>'


def _breakable(value):
    """Text that narrow pages break behind underscores and commas."""
    return page.text(value).replace("_", "_<wbr>").replace(",", ",<wbr>")
