"""Creates Keras initializers from text and returns their distributions."""

import math
import re
import typing

from plsc_tf.requirements import prefix_errors, require

# Standard deviation of a normal distribution that is truncated at two standard
# deviations, as in Keras; Keras's VarianceScaling divides by it.
CUT_DEVIATION = 0.87962566103423978

# Keras's initializers that do not depend on a weight's shape beyond its fans.
NAMES = (
    *("constant", "zeros", "ones", "random_normal", "truncated_normal"),
    *("random_uniform", "variance_scaling", "glorot_normal", "glorot_uniform"),
    *("he_normal", "he_uniform", "lecun_normal", "lecun_uniform"),
)


class Distribution(typing.NamedTuple):
    """The distribution that each weight is drawn from.

    Attributes:
        kind: "normal", "truncated_normal", "uniform" or "constant".
        center: the mean, or the constant.
        spread: standard deviation before truncation, half the width of a uniform
            distribution, or 0 for a constant.
    """

    kind: str
    center: float
    spread: float


def parse(text):
    """Creates the Keras initializer of a text, such as "he_normal" or "constant(0.1)".

    Args:
        text: a Keras initializer's name in snake case, followed by its arguments in
            parentheses.

    Raises:
        ValueError: a name, argument or word is unknown, or a number is none.
    """
    call = re.fullmatch(r"(\w+)(?:\((.*)\))?", text.replace(" ", ""))
    name = call[1].lower() if call else ""
    rule = f"An initializer must be one of {', '.join(NAMES)}"
    advice = "Write arguments as in truncated_normal(stddev=0.02)"
    require(name in NAMES, rule, advice, initializer=repr(text))
    # Without a seed, it would draw one, and change the random numbers of a seeded run.
    options = {} if name in ("constant", "zeros", "ones") else {"seed": 0}
    arguments = filter(None, (call[2] or "").split(","))
    pairs = [argument.rpartition("=") for argument in arguments]
    values = [_value("value", value) for key, _, value in pairs if not key]
    named = {key: _value(key, value) for key, _, value in pairs if key}
    with prefix_errors(f"initializer={text}", TypeError):
        return _kind(name)(*values, **options, **named)


def describe(initializer):
    """Returns the text for `parse` that describes a Keras initializer or its name.

    Raises:
        ValueError: the initializer cannot be described as text.
    """
    text = initializer
    if not isinstance(initializer, str):
        name = next((n for n in NAMES if type(initializer) is _kind(n)), None)
        rule = f"Initial class weights must be one of Keras's {', '.join(NAMES)}"
        require(name, rule, initializer=repr(initializer))
        config = initializer.get_config()
        rule = "Initial class weights depend on the seed of the training"
        seed = config.pop("seed", None)
        given = f"{type(initializer).__name__}(seed={seed!r})"
        require(seed is None, rule, "Leave out its seed", initializer=given)
        values = [f"{key}={one}" for key, one in config.items() if one is not None]
        text = f"{name}({', '.join(values)})"
    distribution(text, 1, 1)
    return text


def distribution(text, fan_in, fan_out):
    """Returns the `Distribution` that an initializer uses for the class weights.

    Args:
        text: the initializer; see `parse`.
        fan_in: length of an embedding.
        fan_out: number of classes.

    Raises:
        ValueError: as of `parse`, or a number is out of range.
    """
    initializer, center = parse(text), 0.0
    given = vars(initializer)
    if "scale" in given:
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        variance = initializer.scale / max(1.0, fans[initializer.mode])
        kind = initializer.distribution.removeprefix("untruncated_")
        spread = math.sqrt(3 * variance if kind == "uniform" else variance)
        spread /= CUT_DEVIATION if kind == "truncated_normal" else 1.0
    elif "stddev" in given:
        cut = isinstance(initializer, _kind("truncated_normal"))
        kind = "truncated_normal" if cut else "normal"
        center, spread = initializer.mean, initializer.stddev
    elif "minval" in given:
        low, high = initializer.minval, initializer.maxval
        kind, center, spread = "uniform", (low + high) / 2, (high - low) / 2
    else:
        ones = isinstance(initializer, _kind("ones"))
        kind, center, spread = "constant", given.get("value", float(ones)), 0.0
    rule = "stddev must not be negative, nor minval above maxval"
    require(spread >= 0, rule, initializer=text)
    return Distribution(kind, center, spread)


def _kind(name):
    """Returns Keras's class of a name in snake case."""
    from keras import initializers  # takes seconds, and few runs need it

    return getattr(initializers, name.title().replace("_", ""))


def _value(name, text):
    """Returns an argument's value: a word or a number."""
    text = text.strip("'\"")
    if name in ("mode", "distribution"):
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    require(math.isfinite(number), f"{name} must be a number", value=text)
    return number
