"""Where an option has an effect: the conditions of `option(..., applies=...)`.

A condition is made of terms joined by " and ", and these by " or ":

    card_dir              the option is set: true, not 0, not empty
    no decay_scheme       it is not
    optimizer=adam,sgd    it has one of these values; * stands for any text, and the
                          dist_ of loss_type may be left out
    cluster               one of FACTS, which only the command itself finds out

`tell` logs the options that were given and have no effect. Each command calls it when
it starts, and again where it knows facts.
"""

import fnmatch

from absl import logging

from plsc_tf.options.settings import ALL, known_options, select

# What a condition may ask besides options, in words for people.
FACTS = {
    "files": "where images come from files",
    "cluster": "in a cluster of several processes",
    "several_replicas": "with several replicas",
    "buckets": "with several GPUs, or in a cluster",
    "examples": "where labeled images are read: training, val_targets=test, card_dir",
    "class_folders": "for data in class folders",
    "splits": "for class folders without a fixed test split",
    "label_numbers": "for data whose files hold the labels as numbers",
    "streamed": "for data that can only be read in order",
    "uncounted": "for mock, and for data that cannot be counted",
    "rotates": "where images are rotated: random_rotate",
    "crops": "where images are cropped: random_resized_crop",
    "recolors": "where colors change: color_jitter, random_hue",
    "erases": "where squares are erased: cutout",
    "auxiliary_logits": "for networks with auxiliary logits",
    "own_optimizer": "with an optimizer made in Python",
    "own_source": "with training data made in Python",
    "script": "with a script",
    "resumed": "where a training is resumed",
}


def tell(settings, facts=None, groups=ALL):
    """Logs, in one line, the options that were given and have no effect.

    Args:
        settings: the `Settings`.
        facts: {name of FACTS: whether it is so}, as far as known; then only options
            that depend on one of them are told.
        groups: the options of the command, see `plsc_tf.options.settings.select`.
    """
    reasons = {}
    for item, why in idle(settings, facts, groups):
        reasons.setdefault(why, []).append(item.name)
    if reasons:
        parts = [f"{', '.join(names)} ({why})" for why, names in reasons.items()]
        logging.info("No effect here: %s.", "; ".join(parts))


def idle(settings, facts=None, groups=ALL):
    """Returns the options that were given and have no effect, and why.

    An option that asks for nothing, since its value is 0 or empty and the default,
    does what it says and is none of them.

    Args:
        settings, facts, groups: as of `tell`.

    Returns:
        list of (`Option`, reason).
    """
    options = select(groups)
    # What the command does not use cannot change what it does.
    values = {item.name: item.default for item in known_options().values()}
    given = settings.as_dict()
    values |= {item.name: given[item.name] for item in options}
    chosen = []
    for item in options:
        value = values[item.name]
        if item.name not in settings.given or (value == item.default and not value):
            continue
        early = bool(item.unused) or holds(item.applies, values) is False
        if item.unused and facts is None:
            chosen.append((item, item.unused))
        elif early == (facts is None) and holds(item.applies, values, facts) is False:
            missing = _missing(item.applies, values, facts)
            chosen.append((item, f"only {in_words(missing)}"))
    return chosen


def of_data(heeds, counted=True):
    """Returns the facts about a data set.

    Args:
        heeds: `plsc_tf.data.source.Source.heeds`.
        counted: whether the number of examples is known.
    """
    if heeds is None:
        return {} if counted else {"uncounted": True}
    return {
        "examples": True,
        "class_folders": "min_images_per_class" in heeds,
        "splits": "held_back" in heeds,
        "label_numbers": "labels_offset" in heeds,
        "uncounted": "num_examples" in heeds or not counted,
    }


def holds(condition, values, facts=None):
    """Returns whether a condition holds, None where a fact decides that is missing.

    Args:
        condition: the text; the empty one always holds.
        values: {option name: value}.
        facts: {name of FACTS: whether it is so}.
    """
    facts, alternatives = facts or {}, parse(condition)
    found = [
        _all([_term_holds(term, values, facts) for term in terms])
        for terms in alternatives
    ]
    if not found or True in found:
        return True
    return None if None in found else False


def parse(condition):
    """Returns a condition as a list of alternatives, each a list of terms."""
    alternatives = condition.split(" or ") if condition else []
    return [terms.split(" and ") for terms in alternatives]


def name_in(term):
    """Returns the name of the option or fact in a term."""
    return term.removeprefix("no ").partition("=")[0]


def in_words(alternatives):
    """Returns a condition in words, to stand after "only".

    Args:
        alternatives: what `parse` returned; terms may have been left out.
    """
    texts = [" and ".join(map(_term_in_words, terms)) for terms in alternatives]
    return ", or ".join(dict.fromkeys(texts))


def _missing(condition, values, facts):
    """The terms of a condition that do not hold."""
    return [
        [t for t in terms if _term_holds(t, values, facts or {}) is False]
        for terms in parse(condition)
    ]


def _all(found):
    if False in found:
        return False
    return None if None in found else True


def _term_holds(term, values, facts):
    if term.startswith("no "):
        found = _term_holds(term.removeprefix("no "), values, facts)
        return None if found is None else not found
    if term in FACTS:
        return facts.get(term)
    name, equals, allowed = term.partition("=")
    value = values[name]
    if not equals:
        return bool(value)
    texts = [str(one) for one in (value if isinstance(value, tuple) else (value,))]
    texts += [text.removeprefix("dist_") for text in texts]
    return any(
        fnmatch.fnmatch(text, pattern)
        for text in texts
        for pattern in allowed.split(",")
    )


def _term_in_words(term):
    negative = term.startswith("no ")
    term = term.removeprefix("no ")
    if term in FACTS:
        text = FACTS[term]
        return text.replace("with ", "without ", 1) if negative else text
    name, equals, allowed = term.partition("=")
    if equals:
        allowed = allowed.split(",")
        choice = " or ".join(filter(None, [", ".join(allowed[:-1]), allowed[-1]]))
        term = f"{name}={choice}"
    return f"without {term}" if negative else f"with {term}"
