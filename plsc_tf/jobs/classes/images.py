"""A checkpoint's training images: their embeddings."""

import numpy as np

from plsc_tf.evaluation.embedding_store import unit
from plsc_tf.jobs import trained
from plsc_tf.jobs.builders import data


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
