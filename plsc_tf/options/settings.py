"""Everything that can be set for a run, checked, in one value.

    settings = Settings.from_values(batch_size=64, model_name="iresnet18")
    settings.training.batch_size, settings.head.margin

The groups are the dataclasses of `flags/`, one file each. A new group is one import
and one line below.
"""

import dataclasses
import functools

from plsc_tf.flags.boost import Boost
from plsc_tf.flags.checking import Checking
from plsc_tf.flags.checkpoints import Checkpoints
from plsc_tf.flags.classes import Classes
from plsc_tf.flags.cluster import Cluster
from plsc_tf.flags.compatibility import Compatibility
from plsc_tf.flags.conversion import Conversion
from plsc_tf.flags.dataset import Dataset
from plsc_tf.flags.embedding import Embedding
from plsc_tf.flags.evaluation import Evaluation
from plsc_tf.flags.export import Export
from plsc_tf.flags.head import Head
from plsc_tf.flags.importing import Importing
from plsc_tf.flags.launching import Launching
from plsc_tf.flags.learning_rate import LearningRate
from plsc_tf.flags.logging import Logging
from plsc_tf.flags.model import Model
from plsc_tf.flags.optimizer import Optimizer
from plsc_tf.flags.option import Option, OptionGroup, option, options_of
from plsc_tf.flags.performance import Performance
from plsc_tf.flags.precision import Precision
from plsc_tf.flags.preprocessing import Preprocessing
from plsc_tf.flags.scoring import Scoring
from plsc_tf.flags.server import Server
from plsc_tf.flags.training import Training
from plsc_tf.options.option_names import unknown_option

__all__ = [
    "ALL",
    "Option",
    "OptionGroup",
    "Settings",
    "known_options",
    "option",
    "select",
]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a run: one attribute per group, every value checked."""

    dataset: Dataset = Dataset()
    preprocessing: Preprocessing = Preprocessing()
    model: Model = Model()
    head: Head = Head()
    training: Training = Training()
    learning_rate: LearningRate = LearningRate()
    optimizer: Optimizer = Optimizer()
    logging: Logging = Logging()
    precision: Precision = Precision()
    performance: Performance = Performance()
    cluster: Cluster = Cluster()
    checkpoints: Checkpoints = Checkpoints()
    evaluation: Evaluation = Evaluation()
    scoring: Scoring = Scoring()
    embedding: Embedding = Embedding()
    export: Export = Export()
    importing: Importing = Importing()
    checking: Checking = Checking()
    conversion: Conversion = Conversion()
    launching: Launching = Launching()
    server: Server = Server()
    classes: Classes = Classes()
    boost: Boost = Boost()
    compatibility: Compatibility = Compatibility()
    # Names of the options that the user set, whatever their values: an option at its
    # default may have been asked for. Settings that differ in it alone are equal.
    given: frozenset = dataclasses.field(default=frozenset(), compare=False)

    def __post_init__(self):
        if (
            self.training.task_type == "finetune"
            and not self.checkpoints.checkpoint_dir
        ):
            raise ValueError(
                "task_type=finetune starts from trained weights: set checkpoint_dir "
                "to their folder. Received: checkpoint_dir=''."
            )

    @classmethod
    def from_values(cls, **values):
        """Returns the defaults with `values` in place, by option name or alias.

        These options count as given; `replace` changes values alone.

        Raises:
            ValueError: an unknown name (the nearest one is told), a value that is
                not allowed, or values that do not go together.
        """
        return cls().replace(**values).with_given(values)

    @classmethod
    def from_stored(cls, values):
        """Returns the settings that `as_dict` gave, by any version of the library.

        Args:
            values: `{option name: value}`; names that are no options here are left out.
        """
        names = set(cls().as_dict())
        return cls().replace(
            **{name: value for name, value in values.items() if name in names}
        )

    def with_given(self, names):
        """Returns a copy in which exactly these options, or aliases, count as given."""
        known = known_options()
        given = frozenset(known[name].name for name in names)
        return dataclasses.replace(self, given=given)

    def asked(self, name):
        """Whether an option was given, or has another value than its default.

        Args:
            name: of the option, no alias.
        """
        item = known_options()[name]
        value = getattr(getattr(self, item.group), name)
        return name in self.given or value != item.default

    def if_given(self, name):
        """Returns the value of an option that was given, else None.

        Args:
            name: of the option, no alias.
        """
        if name not in self.given:
            return None
        return getattr(getattr(self, known_options()[name].group), name)

    def as_dict(self):
        """Returns all options as one flat dict, in the order of the groups."""
        return {
            item.name: getattr(getattr(self, item.group), item.name)
            for group in ALL
            for item in options_of(type(getattr(self, group)))
        }

    def replace(self, **values):
        """Returns a copy with some options changed, by option name or alias.

        Raises:
            ValueError: as `from_values`.
        """
        known = known_options()
        changes = {}
        for name, value in values.items():
            if name not in known:
                raise ValueError(unknown_option(name, known))
            item = known[name]
            group = changes.setdefault(item.group, {})
            if item.name in group:
                raise ValueError(
                    f"{item.name} was given twice, under two names. Received: {name}="
                    f"{value!r}. Aliases: {', '.join(item.aliases)}."
                )
            group[item.name] = value
        return dataclasses.replace(
            self,
            **{
                group: dataclasses.replace(getattr(self, group), **changed)
                for group, changed in changes.items()
            },
        )


_GROUPS = {
    field.name: field.type
    for field in dataclasses.fields(Settings)
    if issubclass(field.type, OptionGroup)
}
ALL = tuple(_GROUPS)


@functools.cache
def known_options():
    """Returns a dict from every option name and alias to its `Option`.

    Raises:
        ValueError: two options share a name.
    """
    known = {}
    for group in _GROUPS.values():
        for item in options_of(group):
            for name in (item.name, *item.aliases):
                if name in known:
                    raise ValueError(f"two options are called '{name}'")
                known[name] = item
    return known


def select(names):
    """Returns a list of the options of some groups, and of single ones.

    Args:
        names: of groups, of options of other groups, and "no x" for each option x of
            the groups before that is to be left out.
    """
    chosen = []
    for name in names:
        if name.startswith("no "):
            chosen.remove(known_options()[name.removeprefix("no ")])
        else:
            group = _GROUPS.get(name)
            chosen += options_of(group) if group else [known_options()[name]]
    return chosen
