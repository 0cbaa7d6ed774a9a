"""Logs options that were given but have no effect, with the reason.

Each command calls `log_unused` when it starts, and again when it knows more facts.
"""

from collections.abc import Collection, Mapping, Sequence

from absl import logging

from plsc_tf.flags import conditions
from plsc_tf.options.other_systems import IGNORED, fastnn_assumptions
from plsc_tf.options.settings import ALL, Settings, known_options, select


def log_unused(
    settings: Settings, facts: Mapping | None = None, groups: Sequence[str] = ALL
) -> None:
    """Logs, in one line, the options that were given but have no effect.

    Args:
        settings: the `Settings`.
        facts: `{key of conditions.FACTS: whether it is true}` for the known facts. If
            given, only options that depend on these facts are logged.
        groups: the options of the command; see `plsc_tf.options.settings.select`.
    """
    reasons: dict[str, list[str]] = {}
    for name, why in unused(settings, facts, groups):
        reasons.setdefault(why, []).append(name)
    if reasons:
        parts = [f"{', '.join(names)} ({why})" for why, names in reasons.items()]
        logging.info("No effect here: %s.", "; ".join(parts))


def unused(
    settings: Settings, facts: Mapping | None = None, groups: Sequence[str] = ALL
) -> list[tuple[str, str]]:
    """Returns (name, reason) for each option that was given but has no effect.

    Options that are off, 0 or empty request nothing and are not included. An option
    that is true, false or None requests nothing if it is None.

    Args:
        settings, facts, groups: as for `log_unused`.
    """
    options = select(groups)
    # Options that the command does not use must not affect the conditions.
    own = settings.as_dict()
    values = Settings().as_dict() | {item.name: own[item.name] for item in options}
    without = []
    if facts is None:
        ignored = settings.ignored
        without = [(name, why) for name, why in IGNORED.items() if name in ignored]
    if values["reproduce"]:  # a card has the options that the others depend on
        return without
    for item in options:
        value = values[item.name]
        off = value is None if item.type is bool and item.optional else not value
        if off or item.name not in settings.given:
            continue
        early = conditions.holds(item.applies, values)
        late = conditions.holds(item.applies, values, facts)
        if not late and early != (facts is None):
            missing = conditions.unmet(item.applies, values, facts)
            without.append((item.name, f"only {conditions.describe(missing)}"))
    return without


def data_facts(fields: Collection[str] | None, counted: bool = True) -> dict[str, bool]:
    """Returns the facts about a data set.

    Args:
        fields: `plsc_tf.data.source.Source.used_fields`.
        counted: whether the number of examples is known.
    """
    if fields is None:
        return {} if counted else {"uncounted": True}
    return {
        "examples": True,
        "splits": "held_back" in fields,
        "label_numbers": "labels_offset" in fields,
        "uncounted": "num_examples" in fields or not counted,
    }


def log_assumptions(settings: Settings) -> None:
    """Logs, in one line, the assumed values of options that FastNN's files lack."""
    known, given = known_options(), settings.given
    assumed = fastnn_assumptions(given | settings.ignored).items()
    if words := [f"{n}={known[n].format(v)}" for n, v in assumed if n not in given]:
        logging.info(
            "Found options of FastNN. Using its defaults for: %s. Other defaults are "
            "PLSC's; hparams/fastnn_defaults.cfg has FastNN's.",
            ", ".join(words),
        )
