"""Evaluates conditions on options.

A condition specifies when an option has an effect, or which values contradict each
other. It consists of alternatives joined by " or "; each alternative consists of terms
joined by " and ":

    card_dir              the option is set: true, not 0, not empty
    no decay_scheme       the option is not set
    optimizer=adam,sgd    the option has one of these values; * matches any text, and
                          the prefix dist_ of loss_type may be omitted
    sample_rate<1         the option is a number below 1; also >, <= and >=
    cluster               a key of `FACTS`, known only to the command itself
"""

import fnmatch
import functools
import operator
import re
from collections.abc import Mapping

# Terms other than options, with their descriptions in messages.
FACTS = {
    "files": "where images come from files",
    "alone": "in a single process",
    "cluster": "in a cluster of several processes",
    "gpus": "on GPUs",
    "several_replicas": "with several replicas",
    "buckets": "with several GPUs, or in a cluster",
    "examples": "where labeled images are read: training, val_targets=test, card_dir",
    "splits": "for class folders without a fixed test split",
    "label_numbers": "for data whose files hold the labels as numbers",
    "streamed": "for data that can only be read in order",
    "uncounted": "for mock, and for data that cannot be counted",
    "recolors": "where colors change: color_jitter, random_hue",
    "auxiliary_logits": "for networks with auxiliary logits",
    "own_optimizer": "with an optimizer made in Python",
    "own_source": "with training data made in Python",
    "script": "with a script",
    "resumed": "where a training run is resumed",
}
_TERM = re.compile(r"(no )?(\w+)(?:(<=|>=|=|<|>)(.*))?")
_ORDER = {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge}


@functools.cache
def parse(condition: str) -> list[list[str]]:
    """Splits a condition into a list of alternatives, each a list of terms."""
    alternatives = condition.split(" or ") if condition else []
    return [terms.split(" and ") for terms in alternatives]


def name_in(term: str) -> str:
    """Returns the name of the option or fact in a term."""
    return _TERM.fullmatch(term)[2]


def names_in(condition: str) -> list[str]:
    """Returns the unique names in a condition."""
    terms = [term for alternative in parse(condition) for term in alternative]
    return list(dict.fromkeys(map(name_in, terms)))


def holds(condition: str, values: Mapping, facts: Mapping | None = None) -> bool:
    """Returns whether a condition holds, or may hold, depending on unknown facts.

    Args:
        condition: the condition; an empty condition always holds.
        values: `{option name: value}`.
        facts: `{key of FACTS: whether it is true}` for the known facts.
    """
    failing = unmet(condition, values, facts)
    return not failing or not all(failing)


def unmet(condition: str, values: Mapping, facts: Mapping | None) -> list[list[str]]:
    """Returns the terms that do not hold, in the same form as `parse`."""
    return [
        [term for term in terms if _term_holds(term, values, facts or {}) is False]
        for terms in parse(condition)
    ]


def describe(alternatives: list[list[str]]) -> str:
    """Describes a condition in words that can follow "only".

    Args:
        alternatives: the result of `parse`, possibly without some terms.
    """
    texts = [" and ".join(map(_describe_term, terms)) for terms in alternatives]
    return ", or ".join(dict.fromkeys(texts))


def _term_holds(term, values, facts):
    prefix, name, sign, text = _TERM.fullmatch(term).groups()
    if prefix:
        outcome = _term_holds(term.removeprefix("no "), values, facts)
        return None if outcome is None else not outcome
    if name in FACTS and name not in values:
        return facts.get(name)
    value = values[name]
    if sign is None:
        return bool(value)
    if sign in _ORDER:
        return value is not None and _ORDER[sign](value, float(text))
    texts = [str(one) for one in (value if isinstance(value, tuple) else (value,))]
    texts += [one.removeprefix("dist_") for one in texts]
    patterns = text.split(",")
    return any(fnmatch.fnmatch(one, pattern) for one in texts for pattern in patterns)


def _describe_term(term):
    prefix, name, sign, text = _TERM.fullmatch(term).groups()
    if name in FACTS:
        words = FACTS[name]
        return words.replace("with ", "without ", 1) if prefix else words
    words = name
    if sign:
        *others, last = text.split(",")
        words += sign + " or ".join(filter(None, [", ".join(others), last]))
    return f"without {words}" if prefix else f"with {words}"
