"""`python -m plsc_tf.embed`: pictures in, embeddings and names out."""

import functools
import os

import numpy as np
from absl import logging

from plsc_tf.data import load as data_load
from plsc_tf.data.preprocessing import own_augmentation
from plsc_tf.jobs import trained
from plsc_tf.jobs.builders import preprocessing
from plsc_tf.jobs.embed import pictures
from plsc_tf.jobs.embed.rows import RowsFile, check_names
from plsc_tf.jobs.embed.served import Served
from plsc_tf.jobs.evaluate.decoding import PictureError
from plsc_tf.jobs.evaluate.embeddings import Pictures
from plsc_tf.parallel import cluster as clusters
from plsc_tf.progress import Progress

# Pictures that could not be read and are named in the log.
_NAMED = 10


def embed(settings):
    """Embeds pictures with a trained or an exported model.

    Args:
        settings: `embedding` says which pictures and where to, `checkpoint_dir`,
            `model_save_dir` or `saved_model` by which model.

    Returns:
        Rows of a table.

    Raises:
        FileExistsError: the output is there already.
        FileNotFoundError: there is no such model, folder or list.
        ValueError: a picture cannot be read, unless skip_bad_records is set, or
            options that do not go together.
    """
    asked = settings.embedding
    _check(asked, settings)
    names, located, points = pictures.listed(
        asked.images, asked.image_dir, asked.landmarks
    )
    check_names(names)
    output = RowsFile(asked.output)
    origin, source, (framing, flip) = _open(settings)
    skipped = {} if settings.preprocessing.skip_bad_records else None
    with output:
        kept, size = _write(output, source, asked, located, points, skipped)
        output.finish([names[row] for row in kept])
    table = [
        origin,
        ("embeddings", output.path),
        ("names", output.names_path),
        ("pictures", f"{len(kept):,}"),
        ("embedding size", size),
        ("picture size", "{} x {}".format(*framing.image_size)),
        ("mirror images added", "yes" if flip else "no"),
        ("aligned by five points", "no" if points is None else "yes"),
    ]
    if skipped:
        table.append(("left out, not readable", f"{len(skipped):,}"))
    return table


def _check(asked, settings):
    if not asked.output:
        raise ValueError(
            "output must name the .npy file to write. Received: output=''."
        )
    if asked.saved_model and settings.checkpoints.checkpoint_dir:
        raise ValueError(
            "saved_model and checkpoint_dir both name a model; give one of them. "
            f"Received: saved_model={asked.saved_model!r}, "
            f"checkpoint_dir={settings.checkpoints.checkpoint_dir!r}."
        )
    if clusters.resolve(settings.cluster, os.environ) is not None:
        raise ValueError(
            "embed is for one process, which uses all devices of its machine. To share "
            "the work over machines, give each a part of the list, another output, and "
            "--cluster_resolver=none."
        )


def _open(settings):
    """((what, where) of the model, a `Pictures`, (its framing, whether it mirrors))."""
    asked = settings.embedding
    if asked.saved_model:
        model = Served(asked.saved_model, asked.embed_batch_size)
        flip = asked.flip
        if flip is None:
            # The data set is not known: what its preprocessing does in training is.
            own = own_augmentation(model.framing.name)
            flip = own is not None and own.flip > 0
        if flip and model.normalized:
            logging.info(
                "%s gives embeddings of length 1: those of mirror images are added "
                "with equal weight, not by their lengths.",
                model.path,
            )
        origin, framing, function = (
            ("SavedModel", model.path),
            model.framing,
            model.embed,
        )
    else:
        found = trained.load(settings)
        framing = preprocessing.framing(found.settings)
        flip = asked.flip
        if flip is None:
            module = data_load.find(found.settings.dataset.dataset_name)
            flip = data_load.suitable_preprocessing(module) != "none"
        origin = ("checkpoint", found.checkpoint)
        function = functools.partial(
            found.model.embed, batch_size=asked.embed_batch_size
        )
    source = Pictures(function, framing, asked.embed_batch_size, flip)
    return origin, source, (framing, flip)


def _write(output, source, asked, located, points, skipped):
    """Embeds all pictures; returns (numbers of those that could be read, size)."""
    progress = Progress("embedding", len(located), "pictures")
    kept, size, told = [], None, 0
    try:
        for rows, embeddings, _ in source.rows(located, points, skipped):
            size = embeddings.shape[1]
            output.add(_finished(embeddings, located, rows, asked.normalize))
            kept.append(rows)
            lost = 0 if skipped is None else len(skipped)
            progress.add(len(rows) + lost - told)
            told = lost
    except PictureError as error:
        raise ValueError(
            f"{error} Replace it or take it out, or leave such pictures out with "
            "--skip_bad_records."
        ) from error
    finally:
        progress.close()
    for path in list(skipped or ())[:_NAMED]:
        logging.warning("Left out: %s: %s", path, skipped[path])
    return np.concatenate(kept), size


def _finished(embeddings, located, rows, normalize):
    """float32 [n, size]; lengths of 1 if asked for."""
    lengths = np.linalg.norm(embeddings, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        bad = int(np.argmin(np.isfinite(lengths[:, 0])))
        raise ValueError(
            f"The embedding of {located[rows[bad]]} is not finite. Has the training "
            "diverged?"
        )
    if normalize:
        embeddings = embeddings / np.maximum(lengths, 1e-12)
    return embeddings.astype(np.float32)
