"""Defines options: their types, defaults, bounds, text format and names.

The groups in `flags/` are dataclasses whose fields are created by `option`; each field
is a flag. The command line, flag files, help and checks are derived from it, so adding
an option takes only one new field in its group.
"""

import dataclasses
import functools
import math
import operator
import re
import types
import typing
from collections.abc import Callable

from plsc_tf.requirements import did_you_mean

_SWITCH = dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True)
_SWITCH |= dict.fromkeys(("false", "f", "no", "n", "off", "0"), False)
_NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "names"}
# In a flag file, they could hide a line from people who read it in a terminal. With \1
# and \2, keys of oss:// begin, whose own check shows no keys.
CONTROLS = re.compile(r"(?!\r\n)[\0\3-\b\v-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
# Characters of the longest text: some checks take quadratic time.
_MOST_TEXT = 1 << 16
# Comparisons and words for the ends of an interval.
_ENDS = {
    "[": (operator.ge, "at least"),
    "(": (operator.gt, "above"),
    "]": (operator.le, "at most"),
    ")": (operator.lt, "below"),
}


# Types with a lower bound, see `lower` of `Option`.
Count = typing.Annotated[int, ("lower", 0)]
Positive = typing.Annotated[int, ("lower", 1)]
Amount = typing.Annotated[float, ("lower", 0)]
# Text "user,password", of which only the user is kept.
Secret = typing.Annotated[str, ("secret", True)]


def option(
    default: object, help: str, *, check: Callable | None = None, **details
) -> typing.Any:
    """Declares one option of a group as a dataclass field.

    The field's annotation is the option's type: bool, int, float, str, `Count` and the
    other types above, one of these with `| None`, a tuple such as `tuple[int, ...]`, or
    `Secret` for text that must not appear in an error message.

    Args:
        default: value if the user doesn't set the option.
        help: the option's effect and unit, and its counterpart in PLSC / FastNN.
        check: function of (name, value) that raises ValueError for invalid values; what
            it returns is for `OptionGroup.parsed`.
        **details: attributes of `Option`: choices and aliases, as words separated by
            spaces; dotted, lower, within, saved, applies.
    """
    words = {name: details.pop(name, "").split() for name in ("choices", "aliases")}
    details |= {name: tuple(found) for name, found in words.items()}
    details |= {"help": help, "run_check": check}
    return dataclasses.field(default=default, metadata=details)


def option_if(condition: str, *default: object) -> Callable:
    """Returns `option` for options with the same `applies` and perhaps default."""
    return functools.partial(option, *default, applies=condition)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Option:
    """An option: a group's field with its name and type.

    Attributes:
        choices: the allowed values in lower case; case is ignored in comparisons.
        dotted: whether the dotted path of a user's own object is allowed too.
        lower: smallest allowed value (for a list: of each element).
        within: both bounds as an interval, such as "[0, 1)"; a parenthesis excludes
            the bound, and inf means no bound.
        aliases: other names of the option.
        saved: False for options that `flags.cfg` must not repeat, such as secrets and
            one-time requests; for a whole group, use `class G(OptionGroup,
            saved=False)`.
        applies: condition under which the option has an effect, such as
            "optimizer=adam" (see `plsc_tf.flags.conditions`); empty if it always has
            one. If the user sets an option that has no effect, the log says so.
    """

    group: str
    name: str
    type: type
    many: bool
    optional: bool
    default: object
    help: str
    secret: bool = False
    choices: tuple[str, ...] = ()
    dotted: bool = False
    lower: float = -math.inf
    within: str = ""
    run_check: Callable | None = None
    aliases: tuple[str, ...] = ()
    saved: bool = True
    applies: str = ""

    @property
    def boolean(self):
        """True if `--name` without a value and `--noname` are allowed."""
        return self.type is bool and not self.many

    @functools.cached_property
    def limits(self):
        """The bounds, [(comparison that must hold, its description, bound)]."""
        text = self.within or f"[{self.lower}, inf)"
        ends = zip((text[0], text[-1]), text[1:-1].split(","), strict=True)
        limits = [(*_ENDS[sign], float(bound)) for sign, bound in ends]
        return [limit for limit in limits if math.isfinite(limit[-1])]

    def parse(self, text):
        """Parses text from a file or the command line; returns the checked value.

        Raises:
            ValueError: the text is not an allowed value.
        """
        if self.type is str and not self.many and not self.choices:
            if text.strip() != "None":
                return self.check(text)
            # FastNN's documentation uses None for an empty text.
            return None if self.optional else self.check("")
        text = text.strip()
        if self.many:
            if self.type is not str:
                text = text.strip("[( )]")
            text = text.removesuffix(",")  # PLSC users write tuples like "(100000,)".
            items = [item.strip() for item in text.split(",")] if text else []
            return self.check(tuple(self._parse_one(item, text) for item in items))
        if self.optional and text.lower() in ("", "none"):
            return None
        return self.check(self._parse_one(text, text))

    def format(self, value):
        """Returns text from which `parse` returns exactly the same value."""
        if self.many:
            return ",".join(self._format_one(item) for item in value)
        return "None" if value is None else self._format_one(value)

    def check(self, value):
        """Checks a value and converts it to the option's type.

        Raises:
            ValueError: the value has the wrong type, is outside the bounds, or is not
                one of the choices.
        """
        value = self._typed(value)
        if len(text := str(value)) > _MOST_TEXT and (self.run_check or not self.many):
            self._refuse(text[:60], f" It has more than {_MOST_TEXT} characters.")
        if self.run_check and value is not None:
            self.run_check(self.name, value)
        return value

    def _typed(self, value):
        if self.many:
            if self.type is str and isinstance(value, str):
                return self.parse(value)  # text as on the command line: "lfw,cfp_fp"
            if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
                self._refuse(value)
            return tuple(self._check_one(item, value) for item in value)
        if value is None and self.optional:
            return value
        checked = self._check_one(value, value)
        return _without_password(checked) if self.secret else checked

    def expected(self):
        """Describes the allowed values in words for error messages and `--help`."""
        if self.choices:
            words = "one of " + ", ".join(self.choices)
            words += ", or the path of your own, package.module.Name" * self.dotted
        elif self.many:
            words = f"{_PLURALS[self.type]} separated by commas"
        else:
            words = _NOUNS[self.type]
        parts = [words, self.bounds(), "or None" if self.optional else ""]
        return ", ".join(part for part in parts if part)

    def bounds(self):
        """Describes the bounds in words; returns "" if there are none."""
        return " and ".join(f"{words} {bound:g}" for _, words, bound in self.limits)

    def _parse_one(self, text, whole):
        try:
            return _SWITCH[text.lower()] if self.type is bool else self.type(text)
        except (KeyError, ValueError):
            self._refuse(whole)

    def _format_one(self, value):
        if self.type is bool:
            return str(value).lower()
        return repr(value) if self.type is float else str(value)

    def _check_one(self, item, whole):
        try:
            item = _converted(item, self.type)
        except (TypeError, ValueError, OverflowError):
            self._refuse(whole)
        if self.choices and not (self.dotted and "." in item):
            item = item.lower()
            if item not in self.choices:
                self._refuse(whole, did_you_mean(item, self.choices))
        if not all(holds(item, bound) for holds, _, bound in self.limits):
            self._refuse(whole)
        if self.type is str and not self._survives_a_file(item):
            hint = " Each item must be one line without commas." if self.many else ""
            self._refuse(whole, hint or " It must be one plain line, and not 'None'.")
        return item

    def _survives_a_file(self, text):
        """Returns whether a text is unchanged after writing and reading `flags.cfg`."""
        plain = "\n" not in text and not CONTROLS.search(text)
        if not self.many:
            return plain and (bool(self.choices) or text.strip() != "None")
        return plain and text == text.strip() != "" and "," not in text

    def _refuse(self, value, hint=""):
        value = "***" if self.secret else value
        received = f"Received: {self.name}={value!r}.{hint}"
        raise ValueError(f"{self.name} must be {self.expected()}. {received}")


def _converted(item, kind):
    """Converts an element to a type; raises TypeError, ValueError or OverflowError."""
    if isinstance(item, str) is not (kind is str):
        raise TypeError
    if isinstance(item, bool) and kind is not bool:
        raise TypeError
    if kind is str:
        return item
    number = float(item) if kind is float else operator.index(item)
    if not (number in (0, 1) if kind is bool else math.isfinite(number)):
        raise ValueError
    return kind(number)


def _without_password(text):
    """Returns "user,***" for "user,password"."""
    # Older checkpoints hold "***" alone.
    return re.sub(r"[^\w.@/-].*", ",***", text.removeprefix("***"))


@typing.dataclass_transform(frozen_default=True, field_specifiers=(option,))
class OptionGroup:
    """Base class of the groups, which become frozen dataclasses with checked options.

    Attributes:
        REFUSED: `{condition: reason for the refusal}` (see `plsc_tf.flags.conditions`);
            conditions may refer to options of other groups. `Settings` checks them.
        SAVED: whether `flags.cfg` repeats the options.
    """

    REFUSED: typing.ClassVar[dict[str, str]] = {}
    SAVED: typing.ClassVar[bool] = True

    def __init_subclass__(cls, saved=True):
        cls.SAVED = saved
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self):
        for item in options_of(type(self)):
            # A frozen dataclass doesn't allow assigning the converted value directly.
            object.__setattr__(self, item.name, item.check(getattr(self, item.name)))

    def parsed(self, name: str) -> dict:
        """Returns what an option's `check` returns, such as the factors by layer."""
        item = next(one for one in options_of(type(self)) if one.name == name)
        return item.run_check(name, getattr(self, name))


@functools.cache
def options_of(group_class: type[OptionGroup]) -> tuple[Option, ...]:
    """Returns the options of a group's dataclass in the order of their declaration."""
    hints = typing.get_type_hints(group_class, include_extras=True)
    # Converts class names to group names: LearningRate becomes learning_rate.
    group = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", group_class.__name__).lower()
    return tuple(
        Option(
            group=group,
            name=field.name,
            default=field.default,
            **_read_type(hints[field.name]),
            **{"saved": group_class.SAVED, **field.metadata},
        )
        for field in dataclasses.fields(group_class)
    )


def _read_type(hint):
    """Returns the `Option` attributes that an annotation implies."""
    optional = types.NoneType in typing.get_args(hint)
    hint = typing.get_args(hint)[0] if optional else hint
    many = typing.get_origin(hint) is tuple
    hint = typing.get_args(hint)[0] if many else hint
    bounds = dict(getattr(hint, "__metadata__", ()))
    kind = getattr(hint, "__origin__", hint)
    return {"type": kind, "many": many, "optional": optional, **bounds}
