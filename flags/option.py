"""What an option is: its type, default, bounds, text form and documented name.

The groups in `flags/` are dataclasses whose fields are made by `option`; the field
is the flag. Everything else (command line, flag files, help, checks) follows from it,
so a new option is one new line in its group.
"""

import dataclasses
import functools
import math
import operator
import types
import typing
from collections.abc import Callable, Sequence

from plsc_tf.hints import did_you_mean

_TRUE = ("true", "t", "yes", "y", "on", "1")
_FALSE = ("false", "f", "no", "n", "off", "0")
_NOUNS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_PLURALS = {int: "whole numbers", float: "numbers", str: "names"}
_BRACKETS = {"[": "]", "(": ")"}


def option(  # noqa: PLR0913 - the properties of an option
    default,
    help: str,
    *,
    choices: Sequence[str] | None = None,
    dotted: bool = False,
    lower: float | None = None,
    within: str = "",
    check: Callable | None = None,
    aliases: Sequence[str] = (),
    saved: bool = True,
    applies: str = "",
):
    """Declares one option of a group as a dataclass field.

    Args:
        default: value unless the user sets the option.
        help: what it does, its unit, and the PLSC / FastNN option it mirrors.
        choices: the only values allowed, in lower case; matched in any case.
        dotted: whether the dotted path of a user's own object is allowed too.
        lower: smallest value allowed (for a list: of each element).
        within: both bounds as an interval, such as "[0, 1)"; a round bracket excludes
            the bound, and inf is none.
        check: called with (name, value); raises ValueError.
        aliases: other names that mean the same option.
        saved: False for options that `flags.cfg` must not repeat, such as secrets and
            one-time requests; also for a whole group: `class G(OptionGroup,
            saved=False)`.
        applies: when the option has an effect, see `plsc_tf.flags.conditions`
            ("optimizer=adam"); empty: always. The log says so when the option is given
            and has none.

    Returns:
        A `dataclasses.field`; its annotation is the option's type: bool, int, float,
        str, one of them `| None`, or `tuple[int, ...]` and the like; `Secret` for text
        that must not appear in a log, a file or an error.
    """
    bounds = _read_interval(within) if within else (lower, None, "")
    details = {
        "help": help,
        "choices": None if choices is None else tuple(choices),
        "dotted": dotted,
        "lower": bounds[0],
        "upper": bounds[1],
        "open_ends": bounds[2],
        "run_check": check,
        "aliases": tuple(aliases),
        "saved": saved,
        "applies": applies,
    }
    return dataclasses.field(default=default, metadata={"option": details})


def _read_interval(text):
    """Returns (lower, upper, excluded ends) of "[0, 1)" and the like."""
    ends = [float(end) for end in text[1:-1].split(",")]
    lower, upper = (None if math.isinf(end) else _short(end) for end in ends)
    excluded = ["lower"] if text[0] == "(" else []
    if text[-1] == ")" and upper is not None:
        excluded.append("upper")
    return lower, upper, " ".join(excluded)


def _short(number):
    return int(number) if number == int(number) else number


@dataclasses.dataclass(frozen=True)
class Option:
    """One option, complete: a field of a group together with its name and type."""

    group: str
    name: str
    type: type
    many: bool
    optional: bool
    secret: bool
    default: object
    help: str
    choices: tuple | None
    dotted: bool
    lower: float | None
    upper: float | None
    open_ends: str
    run_check: Callable | None
    aliases: tuple
    saved: bool
    applies: str

    @property
    def boolean(self):
        """Whether `--name` alone and `--noname` are allowed."""
        return self.type is bool and not self.many

    def parse(self, text):
        """Returns the checked value that `text` spells in a file or on a command line.

        Raises:
            ValueError: the text spells no allowed value.
        """
        if self.type is str and not self.many and not self.choices:
            if text.strip() != "None":
                return self.check(text)
            # FastNN documents None where a text may be empty here.
            return None if self.optional else self.check("")
        text = text.strip()
        if self.many:
            closing = _BRACKETS.get(text[:1]) if self.type is not str else None
            if closing and text.endswith(closing):
                text = text[1:-1].strip()
            items = [item.strip() for item in text.split(",")] if text else []
            if items and not items[-1]:
                items.pop()  # PLSC users write tuples: "(100000,)"
            return self.check(tuple(self._parse_one(item, text) for item in items))
        if self.optional and text.lower() in ("", "none"):
            return None
        return self.check(self._parse_one(text, text))

    def format(self, value):
        """Returns the text that `parse` reads back as exactly this value."""
        if self.many:
            return ",".join(self._format_one(item) for item in value)
        return "None" if value is None else self._format_one(value)

    def check(self, value):
        """Returns `value` in the option's type.

        Raises:
            ValueError: wrong type, outside the bounds, or not one of the choices.
        """
        value = self._typed(value)
        if self.run_check and value is not None:
            self.run_check(self.name, value)
        return value

    def _typed(self, value):
        if self.many:
            if self.type is str and isinstance(value, str):
                return self.parse(value)  # As on a command line: "lfw,cfp_fp".
            if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
                self._refuse(value)
            return tuple(self._check_one(item, value) for item in value)
        if value is None and self.optional:
            return None
        if self.secret and isinstance(value, Secret):
            return value
        checked = self._check_one(value, value)
        return Secret(checked) if self.secret else checked

    def expected(self):
        """Returns the allowed values in words, for errors and `--help`."""
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
        """Returns the bounds in words, empty when there are none."""
        parts = []
        if self.lower is not None:
            word = "above" if "lower" in self.open_ends else "at least"
            parts.append(f"{word} {self.lower}")
        if self.upper is not None:
            word = "below" if "upper" in self.open_ends else "at most"
            parts.append(f"{word} {self.upper}")
        return " and ".join(parts)

    def _parse_one(self, text, whole):
        if self.type is str:
            if self.many and not text:
                self._refuse(whole)
            return text
        if self.type is bool:
            word = text.lower()
            if word not in _TRUE + _FALSE:
                self._refuse(whole)
            return word in _TRUE
        try:
            return self.type(text)
        except ValueError:
            self._refuse(whole)

    def _format_one(self, value):
        if self.type is bool:
            return "true" if value else "false"
        return repr(value) if self.type is float else str(value)

    def _check_one(self, item, whole):
        item = self._convert(item, whole)
        if self.choices and not (self.dotted and "." in item):
            item = item.lower()
            if item not in self.choices:
                self._refuse(whole, did_you_mean(item, self.choices))
        too_low = self.lower is not None and (
            item < self.lower or ("lower" in self.open_ends and item == self.lower)
        )
        too_high = self.upper is not None and (
            item > self.upper or ("upper" in self.open_ends and item == self.upper)
        )
        if too_low or too_high:
            self._refuse(whole)
        if self.type is str and not self._survives_a_file(item):
            self._refuse(whole)
        return item

    def _survives_a_file(self, text):
        """Whether a text comes back from `flags.cfg` as it went in."""
        if len(text.splitlines()) > 1 or text.endswith(("\n", "\r")):
            return False
        if not self.many:
            return self.choices is not None or text.strip() != "None"
        return text == text.strip() != "" and "," not in text

    def _convert(self, item, whole):
        if self.type is str:
            if not isinstance(item, str):
                self._refuse(whole)
            return item
        try:
            index = operator.index(item) if self.type is not float else None
        except TypeError:
            self._refuse(whole)
        if self.type is bool:
            if index not in (0, 1):
                self._refuse(whole)
            return bool(index)
        if isinstance(item, (bool, str)):
            self._refuse(whole)
        if self.type is int:
            return index
        try:
            number = float(item)
        except (TypeError, ValueError):
            self._refuse(whole)
        if not math.isfinite(number):
            self._refuse(whole)
        return number

    def _refuse(self, value, hint=""):
        if self.secret:
            value = Secret.MASK
        raise ValueError(
            f"{self.name} must be {self.expected()}. "
            f"Received: {self.name}={value!r}.{hint}"
        )


class Secret(str):
    """A text that shows as `***`, however it is printed, formatted or stored.

    The text of the mask itself stands for nothing: so it is read back from files that
    an option was written to.
    """

    MASK = "***"

    def __new__(cls, text=""):
        """Hides a text; that of the mask itself becomes the empty one."""
        hidden = "" if text == cls.MASK else str(text)
        secret = super().__new__(cls, cls.MASK if hidden else "")
        secret._text = hidden
        return secret

    def reveal(self):
        """Returns the text, for the one call that needs it."""
        return self._text

    def __eq__(self, other):
        return self._text == (other._text if isinstance(other, Secret) else other)

    def __hash__(self):
        return hash(self._text)

    def __getnewargs__(self):
        return (self._text,)


class OptionGroup:
    """Base of the groups: checks every option when a group is made.

    Attributes:
        REFUSED: {condition: why it is refused}, see `plsc_tf.flags.conditions`; it may
            name options of other groups. `Settings` checks them.
        SAVED: whether `flags.cfg` repeats the options.
    """

    REFUSED: typing.ClassVar[dict[str, str]] = {}
    SAVED: typing.ClassVar[bool] = True

    def __init_subclass__(cls, saved=True):
        cls.SAVED = saved

    def __post_init__(self):
        for item in options_of(type(self)):
            # The only way to store a converted value in a frozen dataclass.
            object.__setattr__(self, item.name, item.check(getattr(self, item.name)))


@functools.cache
def options_of(group_class):
    """Returns the options of a group's dataclass, in the order they are written."""
    hints = typing.get_type_hints(group_class)
    group = group_class.__module__.rpartition(".")[2]
    return tuple(
        Option(
            group=group,
            name=field.name,
            default=field.default,
            **_read_type(hints[field.name]),
            **{
                **field.metadata["option"],
                "saved": group_class.SAVED and field.metadata["option"]["saved"],
            },
        )
        for field in dataclasses.fields(group_class)
    )


def _read_type(hint):
    """Splits `float | None` or `tuple[int, ...]` into its properties."""
    optional = isinstance(hint, types.UnionType)
    if optional:
        hint = next(arg for arg in hint.__args__ if arg is not types.NoneType)
    many = typing.get_origin(hint) is tuple
    if many:
        hint = hint.__args__[0]
    secret = hint is Secret
    return {
        "type": str if secret else hint,
        "many": many,
        "optional": optional,
        "secret": secret,
    }
