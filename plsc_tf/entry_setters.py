"""Creates the setters of PLSC's `Entry` and adds their names to error messages.

Also converts dicts with the fields of Paddle's ParamAttr, which `Entry.set_distfc_attr`
accepts, to options of the head.
"""

import functools
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable

from plsc_tf import initializers
from plsc_tf.options import cli
from plsc_tf.options.settings import known_options

# The options that `Entry.set_distfc_attr` sets.
HEAD_OPTIONS = (
    *("head_initial_deviation", "head_initializer", "head_learning_rate_factor"),
    *("head_weight_decay", "head_initial_bias"),
)
_FIELDS = ("initializer", "learning_rate", "regularizer", "trainable")
_NAMED = re.compile(r"--(\w+)|(?<![\w.(-])([a-z]\w+)(?==|\s+must\b)")
# If an error's traceback contains only these packages, the user's code didn't raise it.
_LIBRARIES = {"plsc_tf", "tensorflow", "keras", "numpy", "absl", "PIL"}
_LIBRARIES |= set(sys.stdlib_module_names)


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

    method.__signature__, method.options = signature, names  # type: ignore
    method.__doc__ = f"Sets {', '.join(names)}, see docs/options.md."
    return method


def sets(*options: str) -> Callable:
    """Returns a decorator that records the options a method sets, for `setters_of`."""

    def decorate(method):
        method.options = options
        return method

    return decorate


def as_option(value):
    """Converts paths and Paddle's mixed precision lists to text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "white_list") or hasattr(value, "black_list"):
        lists = {
            kind: getattr(value, f"{kind}_list", None) for kind in ("white", "black")
        }
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
    factor = 0.0 if fields.get("trainable") is False else fields.get("learning_rate")
    decay = _decay(fields.get("regularizer"))
    fields = _fields(bias_attr, "bias_attr", _FIELDS[:1])
    bias, constant = _initial(fields.get("initializer"), "bias_attr")
    if constant:
        drawn = initializers.distribution(constant, 1, 1)
        if drawn.kind != "constant":
            raise ValueError(
                "bias_attr must be a number or a constant Keras initializer. "
                f"Received: {bias_attr!r}."
            )
        bias = drawn.center
    values = (deviation, text, factor, decay, bias)
    return zip(HEAD_OPTIONS, values, strict=True)


def _fields(given, name, known):
    """Returns a ParamAttr's fields; a value other than a dict is the initializer."""
    if not isinstance(given, dict):
        return {"initializer": given}
    for key in given:
        if key not in (*known, "name"):
            raise ValueError(f"{name} may have {', '.join(known)}. Received: {key!r}.")
    return given


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _initial(initializer, name):
    """Returns (a number or None, an initializer's text or None)."""
    if initializer is None or _is_number(initializer):
        return initializer, None
    try:
        return None, initializers.described(initializer)
    except ValueError as error:
        raise ValueError(
            f"{name} must be a number, a Keras initializer or its name, or a dict with "
            f"fields of a ParamAttr. {error}"
        ) from None


def _decay(regularizer):
    """Returns the weight decay, a factor of the weights in the gradient, or None."""
    if regularizer is None or _is_number(regularizer):
        return regularizer
    if hasattr(regularizer, "l2") and not getattr(regularizer, "l1", 0):
        # Keras's penalty is l2 x sum(w^2), Paddle's is half of that.
        return 2 * float(regularizer.l2)
    raise ValueError(
        "A regularizer of the head must be a factor of weight decay or "
        f"keras.regularizers.L2. Received: {regularizer!r}."
    )


def setters_of(cls: type) -> dict[str, str]:
    """Returns `{option: setter}`; if an option has several setters, the last one."""
    return {
        option: name
        for name, member in vars(cls).items()
        for option in getattr(member, "options", ())
    }


def for_scripts(cls: type) -> type:
    """Decorates a class that scripts use: adds setter names to its error messages.

    If users can fix an error, its message also names the setters of the options, and
    its traceback ends at the script's line unless the environment has
    PLSC_TF_TRACEBACK=1. Errors raised by the user's own code, such as a reader or a
    network, are unchanged.
    """
    setters = setters_of(cls)
    for name, member in list(vars(cls).items()):
        if isinstance(member, property):
            setattr(cls, name, property(_worded(member.fget, setters)))
        elif callable(member) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _worded(member, setters))
    return cls


def _worded(method, setters):
    @functools.wraps(method)
    def call(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except Exception as error:
            shown = os.environ.get(cli.TRACEBACK_VARIABLE) == "1"
            if shown or not cli.is_user_error(error) or not _is_of_libraries(error):
                raise
            if len(error.args) == 1 and isinstance(error.args[0], str):
                error.args = (in_setters(error.args[0], setters),)
            raise error.with_traceback(None) from None

    return call


def in_setters(text: str, setters: dict[str, str]) -> str:
    """Adds the setters of all options named in a message to the message.

    Args:
        text: the message.
        setters: `{option: setter}`.
    """
    known, calls = known_options(), []
    for flag, name in _NAMED.findall(text):
        option = known.get(flag or name)
        call = option and setters.get(option.name)
        if option and flag:
            call = call or f"Entry({option.name}=...)"
        if call and call not in calls and call not in text:
            calls.append(call)
    return f"{text} In a script: {', '.join(calls)}." if calls else text


def _is_of_libraries(error):
    """Returns whether no user code is in the tracebacks of an error and its causes."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame, _ in traceback.walk_tb(error.__traceback__):
            module = frame.f_globals.get("__name__", "")
            if module.partition(".")[0] not in _LIBRARIES:
                return False
        hidden = error.__suppress_context__
        error = error.__cause__ or (None if hidden else error.__context__)
    return True
