"""Defines `Settings`, which contains the checked values of all options of a run.

    settings = Settings.from_values(batch_size=64, model_name="iresnet18")
    settings.training.batch_size, settings.head.margin

The option groups are the dataclasses in `flags/`. To add a group, import it and add a
field to `Settings`.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping

from plsc_tf.flags import commands, conditions
from plsc_tf.flags.boost import Boost
from plsc_tf.flags.checkpoints import Checkpoints
from plsc_tf.flags.classes import Classes
from plsc_tf.flags.cluster import Cluster
from plsc_tf.flags.dataset import Dataset
from plsc_tf.flags.evaluation import Evaluation, Scoring
from plsc_tf.flags.export import Export
from plsc_tf.flags.head import Head
from plsc_tf.flags.learning_rate import LearningRate
from plsc_tf.flags.logging import Logging
from plsc_tf.flags.model import Model
from plsc_tf.flags.optimizer import Optimizer
from plsc_tf.flags.option import Option, OptionGroup, options_of
from plsc_tf.flags.precision import Precision
from plsc_tf.flags.preprocessing import Preprocessing
from plsc_tf.flags.provenance import Provenance
from plsc_tf.flags.server import Server
from plsc_tf.flags.training import Distillation, Performance, Training
from plsc_tf.options.other_systems import ignored_name, translate, unknown_option
from plsc_tf.requirements import require


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a run: one attribute per option group, with checked values."""

    dataset: Dataset = Dataset()
    preprocessing: Preprocessing = Preprocessing()
    model: Model = Model()
    head: Head = Head()
    training: Training = Training()
    distillation: Distillation = Distillation()
    learning_rate: LearningRate = LearningRate()
    optimizer: Optimizer = Optimizer()
    logging: Logging = Logging()
    precision: Precision = Precision()
    performance: Performance = Performance()
    cluster: Cluster = Cluster()
    checkpoints: Checkpoints = Checkpoints()
    evaluation: Evaluation = Evaluation()
    scoring: Scoring = Scoring()
    alignment: commands.Alignment = commands.Alignment()
    embedding: commands.Embedding = commands.Embedding()
    export: Export = Export()
    importing: commands.Importing = commands.Importing()
    checking: commands.Checking = commands.Checking()
    conversion: commands.Conversion = commands.Conversion()
    launching: commands.Launching = commands.Launching()
    server: Server = Server()
    classes: Classes = Classes()
    provenance: Provenance = Provenance()
    boost: Boost = Boost()
    # Names of the options that the user set, even to default values. Comparisons
    # ignore this field and the next one.
    given: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)
    # Names of other systems' options that the user set and that have no effect.
    ignored: frozenset[str] = dataclasses.field(default=frozenset(), compare=False)

    def __post_init__(self):
        values = self.as_dict()
        for group in _GROUPS.values():
            for condition, reason in group.REFUSED.items():
                # A card has the other options of an evaluation to reproduce.
                if conditions.holds(condition, values) and not values["reproduce"]:
                    known, names = known_options(), conditions.names_in(condition)
                    shown = [f"{n}={known[n].format(values[n])}" for n in names]
                    raise ValueError(f"{reason} Received: {', '.join(shown)}.")

    @classmethod
    def from_values(cls, **values) -> "Settings":
        """Returns the default settings, overridden by values by option name or alias.

        These options count as given; in contrast, `replace` only changes values.

        Raises:
            ValueError: a name is unknown (the message suggests the most similar one),
                a value is not allowed, or values contradict each other.
        """
        return cls.build(values, values)

    @classmethod
    def build(cls, values: Mapping, given: Iterable[str]) -> "Settings":
        """Returns the default settings, overridden by `values`.

        Options of other systems are translated to ours; see
        `plsc_tf.options.other_systems`. The names in its `IGNORED` have no effect.

        Args:
            values: `{option name or alias: value}`.
            given: names of the options that the user set.

        Raises:
            ValueError: as for `from_values`.
        """
        known = known_options()
        names = {name: ignored_name(name, value) for name, value in values.items()}
        ignored = frozenset(filter(None, names.values()))
        used = {name: v for name, v in values.items() if not names[name]}
        checked = checked_values(used)
        given = {known[name].name for name in given if not names[name]}
        translated, given = translate(checked, given, known)
        groups = cls().replace(**translated)
        return dataclasses.replace(groups, given=frozenset(given), ignored=ignored)

    @classmethod
    def from_stored(cls, values: Mapping) -> "Settings":
        """Returns settings from a dict that `as_dict` of any version returned.

        Args:
            values: `{option name: value}`; unknown names are ignored.
        """
        return cls().merged(values, known_options())

    def merged(self, stored: Mapping, names: Iterable[str]) -> "Settings":
        """Returns a copy with another run's values of options that the user didn't set.

        Args:
            stored: the other run's `{option name: value}`, such as a checkpoint's
                flags; tuples may be stored as lists.
            names: names of the options to copy.

        Raises:
            ValueError: as for `from_values`.
        """
        names = (known_options().keys() & stored.keys() & set(names)) - self.given
        return self.replace(**{name: stored[name] for name in names})

    def if_given(self, name: str):
        """Returns an option's value if the user set it, else None.

        Args:
            name: the option's name, not an alias.
        """
        return self.as_dict()[name] if name in self.given else None

    def as_dict(self) -> dict:
        """Returns all options as one flat dict, in the order of the groups."""
        groups = (vars(getattr(self, name)) for name in _GROUPS)
        return {name: value for group in groups for name, value in group.items()}

    def replace(self, **values) -> "Settings":
        """Returns a copy with some options changed, by option name or alias.

        Raises:
            ValueError: as for `from_values`.
        """
        changes: dict = {}
        for name, value in checked_values(values).items():
            changes.setdefault(known_options()[name].group, {})[name] = value
        for group, changed in changes.items():
            changes[group] = dataclasses.replace(getattr(self, group), **changed)
        return dataclasses.replace(self, **changes)


def checked_values(values: Mapping) -> dict:
    """Returns `{option name: checked value}`.

    Args:
        values: `{option name or alias: value}`.

    Raises:
        ValueError: a name is unknown or repeated, or a value is not allowed.
    """
    known, checked = known_options(), {}
    for name, value in values.items():
        if name not in known:
            raise ValueError(unknown_option(name, known))
        item = known[name]
        rule = f"{item.name} was set twice, under two of its names"
        advice = f"Aliases: {', '.join(item.aliases)}"
        require(item.name not in checked, rule, advice, **{name: repr(value)})
        checked[item.name] = item.check(value)
    return checked


_GROUPS = {
    field.name: field.type
    for field in dataclasses.fields(Settings)
    if isinstance(field.type, type) and issubclass(field.type, OptionGroup)
}
ALL = tuple(_GROUPS)


@functools.cache
def known_options() -> dict[str, Option]:
    """Returns `{name: Option}` for all option names and aliases."""
    return {
        name: item
        for group in _GROUPS.values()
        for item in options_of(group)
        for name in (item.name, *item.aliases)
    }


def select(names: Iterable[str]) -> list[Option]:
    """Returns the options of whole groups and single options.

    Args:
        names: names of groups and of single options; "no x" removes option x of a
            preceding group.
    """
    chosen: list[Option] = []
    for name in names:
        if name.startswith("no "):
            chosen.remove(known_options()[name.removeprefix("no ")])
        else:
            group = _GROUPS.get(name)
            chosen += options_of(group) if group else [known_options()[name]]
    return chosen
