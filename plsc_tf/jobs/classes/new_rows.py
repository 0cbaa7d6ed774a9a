"""Rows of new classes: given, means of embeddings, or as a new head draws them."""

import dataclasses
import io

import numpy as np

from plsc_tf.jobs import trained
from plsc_tf.jobs.builders.heads import make_head
from plsc_tf.jobs.classes import pictures
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

# Rows that the usual length of a row is taken from.
_SAMPLE = 4096


@dataclasses.dataclass(frozen=True)
class NewRows:
    """Rows of new classes.

    Attributes:
        given: [n, size] of the first ones.
        drawn: function of (first, last + 1) that returns those behind them, counted
            from the first of all.
        names: of the new classes; those without one come last.
        told: how many there are of which kind, for people.
    """

    given: np.ndarray
    drawn: object
    names: tuple
    told: str

    def read(self, low, high):
        """The rows `[low, high)` of all."""
        given = self.given[low:high]
        if high <= len(self.given):
            return given
        drawn = self.drawn(max(low, len(self.given)), high)
        return np.concatenate([given, drawn]) if len(given) else drawn


def find(settings, run, source, stored, make_labels):
    """Rows of the new classes that the settings ask for.

    Args:
        settings: the `Settings`.
        run: those of the training.
        source: the checkpoint.
        stored: its class rows.
        make_labels: function of the number of new classes that returns the
            `LabelsMap`, after checking all labels.

    Returns:
        (`NewRows`, the `LabelsMap`).

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: rows of another size.
    """
    asked, size = settings.classes, stored.shape[1]
    make_labels(1)  # wrong labels are told before the work
    parts, names, told = [], [], []
    if asked.class_rows:
        parts.append(_load(asked.class_rows, size))
        names += ["-"] * len(parts[-1])
        told.append(f"{len(parts[-1]):,} of {asked.class_rows}")
    if asked.class_images:
        means, found = _means(settings, source, stored)
        parts.append(means)
        names += found
        told.append(f"{len(found):,} means of pictures")
    # A single file of rows stays in its file.
    given = np.empty((0, size), np.float32)
    if parts:
        given = parts[0] if len(parts) == 1 else np.concatenate(parts)
    labels = make_labels(len(given) + asked.add_classes)
    if asked.add_classes:
        told.append(f"{asked.add_classes:,} drawn")
    return NewRows(
        given,
        _drawn(run, labels, size),
        tuple(names) if asked.class_images else (),
        f": {', '.join(told)}" if told else "",
    ), labels


def _load(path, size):
    """Rows of a .npy file, mapped where it is a local one."""
    if not files.exists(path):
        raise FileNotFoundError(f"There is no file of class rows {path!r}.")
    try:
        if files.is_local(path):
            rows = np.load(local_path(path), mmap_mode="r", allow_pickle=False)
        else:
            rows = np.load(io.BytesIO(files.read(path)), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no .npy file of numbers: {error}") from error
    if rows.ndim != 2 or rows.shape[1] != size or rows.dtype.kind != "f":
        raise ValueError(
            f"class_rows must hold floats [classes, {size}], as the checkpoint's rows "
            f"are. Received: {rows.dtype}, shape {rows.shape}."
        )
    for low in range(0, len(rows), _SAMPLE):
        if not np.isfinite(rows[low : low + _SAMPLE]).all():
            raise ValueError(f"class_rows {path!r} holds numbers that are not finite.")
    return rows


def _means(settings, source, stored):
    """(mean embeddings as long as the checkpoint's rows, names of their classes)."""
    found = trained.load(settings.replace(checkpoint_dir=source))
    means, names = pictures.mean_directions(
        found.model, settings, settings.classes.class_images
    )
    rows = stored.read(0, min(_SAMPLE, stored.shape[0])).astype(np.float64)
    length = np.mean(np.linalg.norm(rows, axis=1))
    return (means * length).astype(np.float32), names


def _drawn(run, labels, size):
    """Rows as the head of a new training with so many classes has them."""
    head = make_head(run.replace(num_classes=labels.num_classes))
    head.embedding_size = size
    kept = len(labels.origins)
    return lambda low, high: head.initial_weight(kept + low, kept + high)
