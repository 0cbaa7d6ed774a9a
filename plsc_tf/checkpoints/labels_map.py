"""Maps old labels to new ones after classes are removed, merged and added."""

import itertools
import re
from collections.abc import Sequence

import numpy as np

from plsc_tf.requirements import require
from plsc_tf.storage import files

# New label of a removed class.
REMOVED = -1
# Number of labels in one chunk of a text file.
_LINES = 65536
_SPACES = re.compile(r"[\t\n\r]")


class LabelsMap:
    """Maps old classes to new labels.

    Remaining classes keep their order, without gaps; a merged class takes the place of
    its smallest old label; new classes come last.

    Args:
        num_classes: number of old classes.
        removed: labels of classes to remove.
        merged: groups of labels, each of which becomes one class.
        added: number of new classes.

    Attributes:
        new_labels: int64 `[old_classes]`, `REMOVED` for removed classes.
        origins: int64 `[remaining_classes]`, their old labels in ascending order; for a
            merged class, its smallest old label.
        groups: `{new label: int64 array of old labels}` for merged classes.
        added: number of new classes.
        num_classes: number of classes in the result.

    Raises:
        ValueError: a label is unknown or listed twice, or no class is left.
    """

    def __init__(
        self,
        num_classes: int,
        removed: Sequence[int] = (),
        merged: Sequence[Sequence[int]] = (),
        added: int = 0,
    ):
        gone = np.asarray(removed, np.int64)
        groups = [np.sort(np.asarray(group, np.int64)) for group in merged]
        _check(num_classes, gone, groups)
        stays = np.ones(num_classes, bool)
        stays[gone] = False
        for group in groups:
            stays[group[1:]] = False
        self.origins = np.flatnonzero(stays)
        self.new_labels = np.cumsum(stays, dtype=np.int64) - 1
        self.new_labels[~stays] = REMOVED
        for group in groups:
            self.new_labels[group] = self.new_labels[group[0]]
        self.groups = {int(self.new_labels[group[0]]): group for group in groups}
        self.added = added
        self.num_classes = len(self.origins) + added
        require(self.num_classes, "The edit removes all classes. One must remain")

    def write(
        self, path: str, names: Sequence[str] = (), added_names: Sequence[str] = ()
    ) -> None:
        """Writes lines with old label, new label and name; "-" if one is missing.

        Args:
            path: the text file.
            names: the old classes' names, or empty.
            added_names: the new classes' names, or empty.
        """
        old, new = np.arange(len(self.new_labels)), self.new_labels
        first = len(self.origins)

        def lines():
            for begin in range(0, len(new), _LINES):
                end = begin + _LINES
                yield _lines(old[begin:end], new[begin:end], names[begin:end])
            yield _lines([], range(first, self.num_classes), added_names)

        files.replace(path, lines)


def _lines(old, new, names):
    """Formats lines of labels and names; a missing label or name becomes "-"."""
    lines = []
    for row in itertools.zip_longest(old, new, names, fillvalue="-"):
        label, name = "-" if row[1] == REMOVED else row[1], _SPACES.sub("?", row[2])
        lines.append(f"{row[0]}\t{label}\t{name}\n")
    return "".join(lines).encode(errors="surrogateescape")


def _check(num_classes, removed, groups):
    named = np.concatenate([removed, *groups]) if groups else removed
    wrong = named[(named < 0) | (named >= num_classes)]
    rule = f"The checkpoint has the classes 0 to {num_classes - 1}"
    require(not len(wrong), rule, classes=wrong[:9])
    labels, counts = np.unique(named, return_counts=True)
    twice = labels[counts > 1]
    rule = "Each class may be listed only once, to be removed or to be merged"
    require(not len(twice), rule, twice=twice[:9])
    for group in groups:
        require(len(group) > 1, "A merge needs at least two classes", classes=group)
