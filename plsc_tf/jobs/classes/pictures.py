"""Pictures as evaluation sees them, in the order of their files; embeddings."""

import numpy as np

from plsc_tf.data import load as data_load
from plsc_tf.data.checks import doctor
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.pipeline import Batches, PipelineOptions
from plsc_tf.data.readers import class_folders
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.builders.preprocessing import preprocessing_options
from plsc_tf.storage import files

# Lines of a list that are written at a time.
_LINES = 4096


def open_batches(settings, source=None):
    """The training pictures, or others, as batches in the order of the files.

    Args:
        settings: the `Settings`.
        source: of other pictures.
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
        found = model.embed(images, batches.batch_size)
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        yield found / np.maximum(norms, 1e-12), np.asarray(labels)


def mean_directions(model, settings, folder):
    """Mean embedding of each class folder, of length 1.

    Args:
        model: the `Classifier`.
        settings: of the run that trained it.
        folder: that holds the class folders.

    Returns:
        (float32 [classes, size], names of the classes).

    Raises:
        FileNotFoundError: there are no pictures.
        ValueError: the embeddings of a class cancel each other.
    """
    source = class_folders.class_folders(folder)
    sums = np.zeros((source.num_classes, model.embedding_size))
    for found, labels in embeddings(model, open_batches(settings, source)):
        np.add.at(sums, labels, found)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    if not norms.all():
        name = source.class_names[int(np.argmin(norms))]
        raise ValueError(f"The mean embedding of {folder}/{name} is zero.")
    return (sums / norms).astype(np.float32), source.class_names


def check_listable(settings):
    """Refuses a list of a data set whose pictures are no files.

    Raises:
        ValueError: so it is.
    """
    listing, _ = doctor.open_listing(
        settings.dataset.dataset_name, recipe.data_request(settings)
    )
    if listing.folder is None:
        raise ValueError(
            "new_list is a list of files, but the pictures of "
            f"{listing.name!r} are no files of their own. Leave it out."
        )


def check_same(labels, number, label):
    """Checks that an image of the list is the one that was embedded.

    Args:
        labels: of the embedded images, in the order of the files.
        number: of the image in the list.
        label: that it has there.

    Raises:
        ValueError: the data set has changed.
    """
    if number >= len(labels) or labels[number] != label:
        raise ValueError(
            f"Picture {number} has the label {label} in the list, but had another "
            "when it was embedded. Has the data set changed?"
        )


def write_list(path, settings, new_label):
    """Writes "path label" lines of the training pictures, as `plsc_tf.check` does.

    Args:
        path: a file that is not there.
        settings: the `Settings`; its pictures are files.
        new_label: function of (number of the picture, label) that returns its label
            in the list, below 0 to leave it out.

    Returns:
        (number of lines, folder that the paths are below).
    """
    listing, _ = doctor.open_listing(
        settings.dataset.dataset_name, recipe.data_request(settings)
    )
    count = 0

    def lines():
        nonlocal count
        count, waiting = 0, []
        for number, item in enumerate(listing.items(Findings())):
            label = -1
            if item.fault is None and b"\n" not in listing.path(number):
                label = new_label(number, item.label - settings.dataset.labels_offset)
            if label >= 0:
                waiting.append(listing.path(number) + b" %d\n" % label)
                count += 1
            if len(waiting) >= _LINES:
                yield b"".join(waiting)
                waiting = []
        yield b"".join(waiting)

    files.replace(path, lines)
    return count, listing.folder
