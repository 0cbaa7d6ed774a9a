"""Creates the setters of PLSC's `Entry`.

Also converts dicts with the fields of Paddle's ParamAttr, which `Entry.set_distfc_attr`
accepts, to options of the head.
"""

import inspect
import json
import os
from collections.abc import Callable

from plsc_tf import initializers
from plsc_tf.requirements import prefix_errors, require

# The options that `Entry.set_distfc_attr` sets, without "head_".
HEAD_OPTIONS = ("initializer", "learning_rate_factor", "weight_decay", "initial_bias")
_FIELDS = ("initializer", "learning_rate", "regularizer", "trainable")


def setter(*same: str, required: int = 1, **parameters: str) -> Callable[..., None]:
    """Returns a method that sets options; its class needs `_set` and `_set_or_clear`.

    Args:
        *same: parameters with the same names as their options.
        required: number of parameters without a default. For the other parameters, None
            means the option's default.
        **parameters: `{parameter: option}` for further parameters.
    """
    parameters = {**{name: name for name in same}, **parameters}
    kind, none = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    words = [
        inspect.Parameter(word, kind, default=none if place < required else None)
        for place, word in enumerate(parameters)
    ]
    signature = inspect.Signature([inspect.Parameter("self", kind), *words])
    names = tuple(parameters.values())

    def method(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        entry, *values = bound.arguments.values()
        entry._set(**dict(zip(names[:required], values, strict=False)))
        entry._set_or_clear(zip(names[required:], values[required:], strict=True))

    method.__signature__ = signature  # type: ignore
    method.__doc__ = f"Sets {', '.join(names)}, see docs/options.md."
    return method


def as_option(value):
    """Converts paths, MindSpore's dicts and Paddle's mixed precision lists to text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, dict):
        return json.dumps(value)
    if hasattr(value, "white_list") or hasattr(value, "black_list"):
        lists = {k: getattr(value, f"{k}_list", None) for k in ("white", "black")}
        parts = [f"{kind}:{','.join(sorted(v))}" for kind, v in lists.items() if v]
        return ";".join(parts)
    return value


def image_shape_of(inputs):
    """Returns the image shape from PLSC 0.2's description of the inputs."""
    for one in inputs if isinstance(inputs, list | tuple) else ():
        shape = one.get("shape") if isinstance(one, dict) else None
        if len(shape or ()) >= 3:
            return tuple(shape)[-3:]
    raise ValueError(
        "set_input_info needs a list of dicts, one of them with the shape (channels, "
        f"height, width). Received: {inputs!r}."
    )


def head_options(param_attr, bias_attr):
    """Returns pairs of `HEAD_OPTIONS` and their values; None if a value is not set.

    Args:
        param_attr: None; the standard deviation; a Keras initializer or its name; or a
            dict with some of ParamAttr's fields: initializer (one of the above),
            learning_rate (a factor), regularizer (a weight decay or a
            `keras.regularizers.L2`) and trainable.
        bias_attr: None; a number; a constant Keras initializer or its name; or a dict
            with such an initializer. It sets only the initial value: biases are trained
            like the weights.

    Raises:
        ValueError: a value is none of these.
    """
    fields = _fields(param_attr, "param_attr", _FIELDS)
    deviation, text = _initial(fields.get("initializer"), "param_attr")
    if deviation is not None:
        text = f"random_normal(stddev={deviation})"
    factor = 0.0 if fields.get("trainable") is False else fields.get("learning_rate")
    decay = _decay(fields.get("regularizer"))
    fields = _fields(bias_attr, "bias_attr", _FIELDS[:1])
    bias, constant = _initial(fields.get("initializer"), "bias_attr")
    if constant:
        drawn = initializers.distribution(constant, 1, 1)
        rule = "bias_attr must be a number or a constant Keras initializer"
        require(drawn.kind == "constant", rule, bias_attr=repr(bias_attr))
        bias = drawn.center
    names = (f"head_{name}" for name in HEAD_OPTIONS)
    return zip(names, (text, factor, decay, bias), strict=True)


def _fields(given, name, known):
    """Returns a ParamAttr's fields; a value other than a dict is the initializer."""
    if not isinstance(given, dict):
        return {"initializer": given}
    unknown = [key for key in given if key not in (*known, "name")]
    require(not unknown, f"{name} may contain only {', '.join(known)}", keys=unknown)
    return given


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _initial(initializer, name):
    """Returns (a number or None, an initializer's text or None)."""
    if initializer is None or _is_number(initializer):
        return initializer, None
    rule = f"{name} must be a number, a Keras initializer or its name, or a dict of "
    with prefix_errors(f"{rule}ParamAttr's fields"):
        return None, initializers.describe(initializer)


def _decay(regularizer):
    """Returns the weight decay, a factor of the weights in the gradient, or None."""
    if regularizer is None or _is_number(regularizer):
        return regularizer
    if hasattr(regularizer, "l2") and not getattr(regularizer, "l1", 0):
        # Keras's penalty is l2 x sum(w^2), Paddle's is half of that.
        return 2 * float(regularizer.l2)
    raise ValueError(
        "A regularizer of the head must be a number (the weight decay) or a "
        f"keras.regularizers.L2. Received: {regularizer!r}."
    )
