"""The training images of a checkpoint: settings, embeddings, and lists of them."""

import dataclasses

import numpy as np

from plsc_tf.checkpoints import manifest
from plsc_tf.data import load as data_load
from plsc_tf.data.checks import report
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listings import open_listing
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.flags.preprocessing import Preprocessing
from plsc_tf.jobs import trained
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.builders.preprocessing import preprocessing_options
from plsc_tf.options.settings import Settings

_NAMES = (
    *trained.OF_THE_DATA,
    *(field.name for field in dataclasses.fields(Preprocessing)),
)


def complete(settings, path):
    """Completes settings by those that a checkpoint was trained with.

    Args:
        settings: the `Settings` of the command.
        path: the checkpoint folder.

    Returns:
        (the same with data and preprocessing of the training, where options are not
        given, and its number of classes; settings of the training).
    """
    state = manifest.read(path)["state"]
    flags = state.get("flags", {})
    settings = settings.merged(flags, _NAMES).replace(num_classes=state["num_classes"])
    return settings, Settings.from_stored(flags)


def open_batches(settings, source=None):
    """Opens the training images, or others, as batches in the order of the files.

    Args:
        settings: the `Settings`.
        source: of other images.
    """
    module = data_load.find(settings.dataset.dataset_name)
    options = PipelineOptions(
        **preprocessing_options(
            settings.preprocessing, data_load.suitable_preprocessing(module)
        ),
        training=False,
        shuffle=False,
    )
    source = recipe.open_source(settings) if source is None else source
    return Batches(source, settings.evaluation.test_batch_size, options=options)


def embeddings(model, batches):
    """Yields (unit embeddings float32 [n, size], labels int64 [n]) batch by batch."""
    for images, labels in batches:
        rows = model.embed(images, batches.batch_size)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        yield rows / np.maximum(norms, 1e-12), np.asarray(labels)


def check_listable(settings):
    """Raises ValueError if a new_list cannot name the images, which are not files."""
    report.check_listable(_listing(settings), "new_list")


def write_list(path, settings, new_label, embedded=None):
    """Writes "path label" lines of the training images, as `plsc_tf.check` does.

    Args:
        path: a new file.
        settings: the `Settings`; its images are files.
        new_label: function of (number of the image, label) that returns its label in
            the list, below 0 to leave it out.
        embedded: labels of the images when they were embedded; None if they were not.

    Returns:
        a row of a table.

    Raises:
        ValueError: the data set has changed since the images were embedded.
    """
    listing = None

    def entries():
        nonlocal listing
        listing = _listing(settings)
        for number, item in enumerate(listing.items(Findings())):
            if item.fault is not None:
                continue
            old = item.label
            if embedded is not None and (
                number >= len(embedded) or embedded[number] != old
            ):
                raise ValueError(
                    f"Image {number} has the label {old} in the list, but had another "
                    "when it was embedded. Has the data set changed?"
                )
            label = new_label(number, old)
            if label >= 0:
                yield listing.path(number), label

    count = report.write_list(path, entries)
    return "new list", f"{path}: {count:,} images in {listing.folder}"


def _listing(settings):
    name = settings.dataset.dataset_name
    return open_listing(name, recipe.data_request(settings))
