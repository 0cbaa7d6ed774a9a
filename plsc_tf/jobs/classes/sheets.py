"""Contact sheets of labels that look wrong: pictures side by side."""

import numpy as np
import tensorflow as tf

from plsc_tf.data import contact_sheet, images
from plsc_tf.data.source import IndexedSource
from plsc_tf.storage import files

# Findings of a sheet, pictures of each class, and their height and width.
_ROWS, _PICTURES, _SIZE = 30, 5, (56, 56)


def draw_all(folder, found, batches):
    """Draws the first findings of each kind.

    Args:
        folder: to make, or to draw into.
        found: the `Found`.
        batches: the training pictures as they were embedded.

    Returns:
        the rows of a table.
    """
    source = batches.source
    if not isinstance(source, IndexedSource):
        return [("sheets", f"none: single pictures of {source.name} cannot be read")]
    members = _Members(found.store)
    drawn = {
        "near_duplicates": list(_pairs(found, members)),
        "mislabelled": list(_pictures(found, members)),
        "two_in_one": list(_splits(found)),
    }
    files.make_dirs(folder)
    table = []
    for name, rows in drawn.items():
        if rows:
            path = files.join(folder, f"{name}.png")
            contact_sheet.draw(path, [(title, _row(source, r)) for title, r in rows])
            table.append(("sheet", f"{path}: {len(rows)} of {name}"))
    return table


class _Members:
    """Pictures of each class."""

    def __init__(self, store):
        self._order = np.argsort(store.labels, kind="stable")
        self._ends = np.cumsum(store.counts)
        self._counts = store.counts

    def some(self, label, but=-1):
        """The first pictures of a class, without one of them."""
        end, count = int(self._ends[label]), int(self._counts[label])
        first = self._order[end - count : end][: _PICTURES + 1]
        return [int(number) for number in first if number != but][:_PICTURES]


def _pairs(found, members):
    alike = found.alike
    for k in range(min(_ROWS, len(alike.first))):
        a, b = int(alike.first[k]), int(alike.second[k])
        title = f"{a} = {b}\n{alike.alike[k]:.3f}"
        yield title, (members.some(a), members.some(b))


def _pictures(found, members):
    nearest = found.nearest
    excess = np.where(found.mislabelled, nearest.excess, -np.inf)
    for number in np.argsort(-excess, kind="stable")[:_ROWS].tolist():
        if found.mislabelled[number]:
            own = int(found.store.labels[number])
            other = int(nearest.label[number])
            title = f"{own} or {other}?\n{excess[number]:.3f}"
            groups = [number], members.some(own, number), members.some(other)
            yield title, groups


def _splits(found):
    for split, score in zip(found.splits[:_ROWS], found.scores, strict=False):
        if score > found.thresholds["split"]:
            title = f"{split.label}\n{score:.1f}"
            yield title, (split.first[:_PICTURES], split.second[:_PICTURES])


def _row(source, groups):
    """Pictures of groups with a gap between them; short groups are filled up."""
    gap, row = np.full((*_SIZE, 3), 255, np.uint8), []
    for position, numbers in enumerate(groups):
        if position:
            row.append(gap)
        numbers = [int(number) for number in numbers]
        row += [_picture(source, number) for number in numbers]
        if len(numbers) > 1 or position:
            row += [gap] * (_PICTURES - len(numbers))
    return row


def _picture(source, number):
    image = source.read({"index": tf.constant([number], tf.int64)})["image"][0]
    if isinstance(image, tf.RaggedTensor):
        image = image.to_tensor()
    return images.resize(images.to_rgb(image), _SIZE).numpy()
