"""Parses Keras initializers given as text and returns their distributions."""

import ast
import math
import re
import typing

from plsc_tf.requirements import require, require_one_of

# Standard deviation of a normal distribution that is truncated at two standard
# deviations, as in Keras; Keras's VarianceScaling divides by it.
CUT_DEVIATION = 0.87962566103423978

# Keras's initializers: {name: {argument: default}}.
ARGUMENTS = {
    "random_normal": {"mean": 0.0, "stddev": 0.05},
    "truncated_normal": {"mean": 0.0, "stddev": 0.05},
    "random_uniform": {"minval": -0.05, "maxval": 0.05},
    "constant": {"value": 0.0},
    "zeros": {},
    "ones": {},
    "variance_scaling": {
        "scale": 1.0,
        "mode": "fan_in",
        "distribution": "truncated_normal",
    },
    **{
        f"{name}_{kind}": {}
        for name in ("glorot", "he", "lecun")
        for kind in ("normal", "uniform")
    },
}
_SCALED = {"glorot": (1.0, "fan_avg"), "he": (2.0, "fan_in"), "lecun": (1.0, "fan_in")}
_CONSTANTS = {"zeros": 0.0, "ones": 1.0}
# Arguments whose values are words, and the allowed words.
_WORDS = {
    "mode": ("fan_in", "fan_out", "fan_avg"),
    "distribution": ("truncated_normal", "untruncated_normal", "uniform"),
}
_TEXT = re.compile(r"\s*(\w+)\s*(?:\((.*)\))?\s*", re.DOTALL)


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
    """Parses an initializer such as "he_normal" or "constant(0.1)".

    Args:
        text: a Keras initializer's name in snake case, followed by keyword arguments in
            parentheses. If an initializer has only one argument, its name may be
            omitted.

    Returns:
        (name, `{argument: value}`).

    Raises:
        ValueError: a name or argument is unknown, or a value is not allowed.
    """
    match = _TEXT.fullmatch(text)
    name = match and match[1].lower()
    rule = f"An initializer must be one of {', '.join(ARGUMENTS)}"
    advice = "Write arguments as in truncated_normal(stddev=0.02)"
    require(name in ARGUMENTS, rule, advice, initializer=repr(text))
    arguments = dict(ARGUMENTS[name])
    for part in filter(None, (part.strip() for part in (match[2] or "").split(","))):
        key, equals, value = part.partition("=")
        if not equals and len(arguments) == 1:
            key, value = next(iter(arguments)), part
        key = key.strip()
        rule = f"The arguments of {name} are: {', '.join(arguments) or 'none'}"
        require(key in arguments, rule, initializer=text)
        arguments[key] = _value(key, value.strip(), text)
    fits = arguments.get("stddev", 0) >= 0 and arguments.get("scale", 1) > 0
    rule = "stddev must not be negative, and scale must be positive"
    require(fits, rule, initializer=text)
    fits = arguments.get("minval", 0) <= arguments.get("maxval", 0)
    require(fits, "minval must not be above maxval", initializer=text)
    return name, arguments


def describe(initializer):
    """Returns the text for `parse` that describes a Keras initializer or its name.

    Raises:
        ValueError: the initializer cannot be described as text.
    """
    if isinstance(initializer, str):
        parse(initializer)
        return initializer
    kind = type(initializer).__name__
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind).lower()
    fits = name in ARGUMENTS and hasattr(initializer, "get_config")
    rule = f"Initial class weights must be one of Keras's {', '.join(ARGUMENTS)}"
    require(fits, rule, initializer=repr(initializer))
    config = initializer.get_config()
    rule = "Initial class weights depend on the seed of the training"
    given = f"{kind}(seed={config.get('seed')!r})"
    require(config.get("seed") is None, rule, "Leave out its seed", initializer=given)
    values = {key: config[key] for key in ARGUMENTS[name]}
    inner = ", ".join(f"{key}={value}" for key, value in values.items())
    text = f"{name}({inner})" if inner else name
    parse(text)
    return text


def distribution(text, fan_in, fan_out):
    """Returns the `Distribution` that an initializer uses for the class weights.

    Args:
        text: the initializer; see `parse`.
        fan_in: length of an embedding.
        fan_out: number of classes.
    """
    name, values = parse(text)
    if name in _CONSTANTS or name == "constant":
        return Distribution("constant", values.get("value", _CONSTANTS.get(name)), 0.0)
    if name in ("random_normal", "truncated_normal"):
        kind = name.removeprefix("random_")
        return Distribution(kind, values["mean"], values["stddev"])
    if name == "random_uniform":
        low, high = values["minval"], values["maxval"]
        return Distribution("uniform", (low + high) / 2, (high - low) / 2)
    if name == "variance_scaling":
        scale, mode, kind = values.values()
    else:
        family, _, kind = name.partition("_")
        scale, mode = _SCALED[family]
        kind = "truncated_normal" if kind == "normal" else kind
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    variance = scale / max(1.0, fans[mode])
    if kind == "uniform":
        return Distribution("uniform", 0.0, math.sqrt(3 * variance))
    if kind == "truncated_normal":
        return Distribution(kind, 0.0, math.sqrt(variance) / CUT_DEVIATION)
    return Distribution("normal", 0.0, math.sqrt(variance))


def _value(key, text, whole):
    """Parses an argument's value: a word for arguments in `_WORDS`, else a number."""
    if key in _WORDS:
        word = text.strip("'\"")
        require_one_of(_WORDS[key], **{key: word})
        return word
    try:
        number = float(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError):
        number = math.nan
    require(math.isfinite(number), f"{key} must be a number", initializer=whole)
    return number
