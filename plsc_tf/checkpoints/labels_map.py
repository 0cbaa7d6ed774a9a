"""The new labels after classes are removed, merged and added."""

import base64
import zlib

import numpy as np

from plsc_tf.storage import files

# New label of a class that is removed.
REMOVED = -1
# Runs of classes that stay which are told one by one.
_RUNS = 10_000
# Labels of one piece of a text file.
_LINES = 65536


class LabelsMap:
    """New labels of old classes.

    Classes that stay keep their order, without gaps; a merged class stands where the
    smallest of its labels stood; new classes come last.

    Args:
        num_classes: classes there are.
        removed: labels of classes to remove.
        merged: groups of labels, each of which becomes one class.
        added: number of new classes.

    Attributes:
        new_labels: int64 [old classes], `REMOVED` for those that are gone.
        origins: int64 [classes that stay], old labels, growing; of a merged class
            the smallest.
        groups: `{new label: int64 array of old ones}` of the merged classes.
        added: number of new classes.
        num_classes: of the result.

    Raises:
        ValueError: a label that is none, or that is named twice; no class is left.
    """

    def __init__(self, num_classes, removed=(), merged=(), added=0):
        removed = np.asarray(removed, np.int64)
        groups = [np.sort(np.asarray(group, np.int64)) for group in merged]
        _check(num_classes, removed, groups, added)
        stays = np.ones(num_classes, bool)
        stays[removed] = False
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
        if not self.num_classes:
            raise ValueError("No class would be left.")

    def describe(self, names=()):
        """The map as plain values, for a checkpoint's state.

        Args:
            names: of the new classes, as far as they have some.

        Returns:
            `from` and `to`: numbers of classes; `runs`: `[first old label, first new
            label, classes]` of what stays, in order; `merged`: `[new label, [old
            labels]]`; `added`: how many; `added_names`. Where there are very many
            runs, `runs` is None and `stays` has a bit for each old class: most
            significant bits first, compressed by zlib, in base64.
        """
        breaks = np.flatnonzero(np.diff(self.origins) != 1) + 1
        firsts = np.concatenate([[0], breaks]).astype(np.int64)
        ends = np.append(breaks, len(self.origins))
        told = {"runs": None}
        if len(firsts) > _RUNS:
            stays = np.zeros(len(self.new_labels), bool)
            stays[self.origins] = True
            packed = zlib.compress(np.packbits(stays).tobytes())
            told["stays"] = base64.b64encode(packed).decode()
        else:
            told["runs"] = [
                [int(self.origins[first]), int(first), int(end - first)]
                for first, end in zip(firsts, ends, strict=True)
                if first < end
            ]
        return {
            "from": len(self.new_labels),
            "to": self.num_classes,
            **told,
            "merged": [[new, old.tolist()] for new, old in self.groups.items()],
            "added": self.added,
            "added_names": list(names),
        }

    def write(self, path, names=(), added_names=()):
        """Writes lines of old label, new label and name; "-" for what there is not.

        Args:
            path: of the text file.
            names: of the old classes, or empty.
            added_names: of the new ones, or empty.
        """

        def lines():
            count = len(self.new_labels)
            for begin in range(0, count, _LINES):
                end = min(begin + _LINES, count)
                new = self.new_labels[begin:end].tolist()
                yield "".join(
                    _line(begin + k, "-" if label == REMOVED else label, names)
                    for k, label in enumerate(new)
                ).encode(errors="surrogateescape")
            for number in range(self.added):
                name = _plain(added_names[number]) if number < len(added_names) else "-"
                label = len(self.origins) + number
                yield f"-\t{label}\t{name}\n".encode(errors="surrogateescape")

        files.replace(path, lines)


def _line(old, new, names):
    return f"{old}\t{new}\t{_plain(names[old]) if names else '-'}\n"


def _plain(name):
    return "".join("?" if char in "\t\n\r" else char for char in name)


def _check(num_classes, removed, groups, added):
    named = np.concatenate([removed, *groups]) if groups else removed
    wrong = named[(named < 0) | (named >= num_classes)]
    if len(wrong):
        raise ValueError(
            f"The checkpoint has the classes 0 to {num_classes - 1}. Received: class "
            f"{wrong[0]}."
        )
    found, counts = np.unique(named, return_counts=True)
    if np.any(counts > 1):
        raise ValueError(
            "Each class can be removed, or merged with others, once. Received twice: "
            f"class {found[np.argmax(counts > 1)]}."
        )
    for group in groups:
        if len(group) < 2:
            raise ValueError(
                "It takes two classes to merge. Received: "
                f"{', '.join(map(str, group)) or 'none'}."
            )
    if added < 0:
        raise ValueError(f"added must not be negative. Received: added={added}.")
