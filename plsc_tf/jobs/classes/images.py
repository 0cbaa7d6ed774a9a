"""A checkpoint's training images: the names of classes, embeddings and lists."""

import contextlib

import numpy as np
import tensorflow as tf

from plsc_tf.checkpoints import editing
from plsc_tf.data.checks import listings, report
from plsc_tf.data.checks.findings import Findings
from plsc_tf.evaluation.embedding_store import unit
from plsc_tf.jobs import trained
from plsc_tf.jobs.builders import data
from plsc_tf.requirements import require


def class_names(settings, state):
    """Returns (the class names of the training data or (), why there are none).

    A class folder that was added or renamed after the training changes the numbers of
    other classes, and so does an edit of the checkpoint's classes.

    Args:
        settings: the `Settings`, which name the data.
        state: the checkpoint's state, which has the contents of the training's data.
    """
    try:
        source = data.open_source(settings)
    except (OSError, ValueError, tf.errors.OpError) as error:
        return (), f"the training data cannot be read: {error}"
    names, contents = getattr(source, "class_names", ()), source.contents()
    same = state.get("data", {}).get("contents", contents) == contents
    if not same or state.get(editing.EDITED):
        return (), "the data is not that of the training; its labels may differ"
    if len(names) != state["num_classes"]:
        return (), f"the data set has {len(names)} class names"
    return names, ""


def require_own_data(settings, state, strict=False):
    """Raises a ValueError if the labels in the data are those before an edit.

    Args:
        settings, state: see `class_names`.
        strict: whether to refuse all data that is not that of the training, too, unless
            dataset_dir names it.
    """
    before, given = state.get(editing.EDITED), "dataset_dir" in settings.given
    trained, contents = state.get("data", {}).get("contents"), None
    if before or (strict and trained and not given):
        with contextlib.suppress(OSError, ValueError, tf.errors.OpError):
            contents = data.open_source(settings).contents()
    rule = "The checkpoint's classes were edited, so those of its data differ"
    fits = not before or (given and contents != before)
    require(fits, rule, "Set dataset_dir to data with the new labels")
    rule = "The data is not that of the training; its labels may differ"
    fits = given or not strict or contents in (None, trained)
    require(fits, rule, "Set dataset_dir to data with those of the training")


def embeddings(settings, path, source):
    """Embeds images in file order, framed as in evaluation.

    Args:
        settings: the `Settings`.
        path: the checkpoint folder.
        source: the images' `Source`.

    Yields:
        (unit embeddings float32 `[n, size]`, labels `[n]`), batch by batch.
    """
    size = settings.evaluation.test_batch_size
    model = trained.load(settings.replace(checkpoint_dir=path)).model
    for images, labels in data.load_batches(settings, size, "test", source):
        yield unit(model.embed(images, size)), np.asarray(labels)


def open_listing(settings):
    """Returns the `Listing` of the training images."""
    name = settings.dataset.dataset_name
    return listings.open_listing(name, data.data_request(settings))


def write_list(path, settings, new_label):
    """Writes "path label" lines for the training images, like `plsc_tf.check`.

    Args:
        path: path of the new list.
        settings: the `Settings`; the data set's images must be files.
        new_label: function that takes an image's index and label and returns its label
            in the list; a negative label leaves the image out.

    Returns:
        A table row.
    """

    def entries():
        listing = open_listing(settings)
        for number, item in enumerate(listing.items(Findings())):
            label = -1 if item.faults else new_label(number, item.label)
            if label >= 0:
                yield listing.path(number), label

    count = report.write_list(path, entries)
    return "new list", f"{path}: {count:,} images in {open_listing(settings).folder}"
