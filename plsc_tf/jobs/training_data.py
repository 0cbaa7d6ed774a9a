"""Compares the data that the settings name with that of a checkpoint's training."""

import functools

import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import editing
from plsc_tf.data.checks import listings, report
from plsc_tf.data.checks.findings import Findings
from plsc_tf.jobs.builders import data
from plsc_tf.requirements import require


def unreadable(error: Exception) -> str:
    """Logs why training data cannot be read; returns what a card may say of it."""
    # The error may quote any file that a forged checkpoint names.
    logging.warning("The training data cannot be read: %s", error)
    return "the training data cannot be read"


class TrainingData:
    """The data set of a checkpoint's training; it is opened once, when it is needed.

    A class folder that was added or renamed after the training changes the numbers of
    other classes, and so does an edit of the checkpoint's classes.

    Args:
        settings: the `Settings`, which name the data.
        state: the checkpoint's state, which has the contents of the training's data.
    """

    def __init__(self, settings, state):
        self._settings, self._classes = settings, state["num_classes"]
        # `Source.contents` of the data before an edit; True if they are unknown.
        self._edited = state.get(editing.EDITED)
        self._trained = state.get("data", {}).get("contents")

    @functools.cached_property
    def source(self):
        """The `Source`."""
        return data.open_source(self._settings)

    @functools.cached_property
    def difference(self):
        """Why this may not be the data of the training, or ""."""
        try:
            contents = self.source.contents()
        except (OSError, ValueError, tf.errors.OpError) as error:
            return unreadable(error)
        if self._trained in (None, contents):
            return ""
        return "the data is not that of the training; its labels may differ"

    def class_names(self):
        """Returns (the names of the checkpoint's classes or (), why there are none)."""
        if self.difference:
            return (), self.difference
        if self._edited:
            return (), "the classes were edited, so those of the data may differ"
        names = getattr(self.source, "class_names", ())
        if len(names) != self._classes:
            return (), f"the data set has {len(names)} class names"
        return names, ""

    def require_labels(self, strict=False):
        """Raises a ValueError if the labels in the data are not the checkpoint's.

        Args:
            strict: whether to refuse all data that is not that of the training, unless
                dataset_dir names it.
        """
        given = "dataset_dir" in self._settings.given
        if self._edited:
            rule = "The checkpoint's classes were edited, so those of its data differ"
            fits = given and self.source.contents() != self._edited
            require(fits, rule, "Set dataset_dir to data with the new labels")
        elif strict and not given:
            rule = "The data is not that of the training; its labels may differ"
            advice = "Set dataset_dir to data with those of the training"
            require(self._trained in (None, self.source.contents()), rule, advice)

    def open_listing(self):
        """Returns the `Listing` of the images."""
        name = self._settings.dataset.dataset_name
        return listings.open_listing(name, data.data_request(self._settings))

    def write_list(self, path, new_label):
        """Writes "path label" lines for the images, like `plsc_tf.check`.

        Args:
            path: path of the new list; the data set's images must be files.
            new_label: function that takes an image's index and label and returns its
                label in the list; a negative label leaves the image out.

        Returns:
            A table row.
        """

        def entries():
            listing = self.open_listing()
            for number, item in enumerate(listing.items(Findings())):
                if (label := -1 if item.faults else new_label(number, item.label)) >= 0:
                    yield listing.path(number), label

        count = report.write_list(path, entries)
        return "new list", f"{path}: {count:,} images in {self.open_listing().folder}"
