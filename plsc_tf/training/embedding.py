"""Embeddings of images on all replicas, as at inference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.data import images as data_images
from plsc_tf.data.images import check_range
from plsc_tf.parallel.strategy import gather
from plsc_tf.training import batching, user_data

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier

# Images at a time (PLSC: test_batch_size).
BATCH = 120


def function(model: Classifier) -> Callable:
    """A `tf.function` that embeds a per-replica batch (images,) as at inference."""

    def embed_images(images):
        return tf.cast(model(images, training=False), tf.float32)

    def embed(batch):
        # Half precision is for training: moving statistics lag behind the batches', and
        # what they normalize badly in the first steps overflows float16.
        with in_float32(model.backbone):
            return model.strategy.run(embed_images, args=batch)

    return tf.function(embed, autograph=False)


def in_parts(
    model: Classifier, function: Callable, images: Any, batch_size: int
) -> Iterator[np.ndarray]:
    """Yields embeddings batch by batch.

    Args:
        model: the `Classifier`.
        function: of a per-replica batch (images,), which returns embeddings.
        images: `[N, h, w, 3]`.
        batch_size: images at a time over all replicas.
    """
    batching.check_rank(np.shape(images), "images")
    batching.check_channels(np.shape(images), model.backbone.input_shape[3])
    check_range(np.asarray(images), "images")
    model.synchronize_statistics()
    size = _padded(model, batch_size, images)
    for start in range(0, len(images), size):
        model.trainer.heartbeat()
        chunk = tf.convert_to_tensor(images[start : start + size])
        chunk = data_images.resize(chunk, model.image_size)
        count = len(chunk)
        chunk = tf.gather(chunk, tf.range(size) % count)
        embedded = function(batching.split(model.strategy, (chunk,)))
        local = model.strategy.experimental_local_results(embedded)
        whole = gather(model.strategy, [part.numpy() for part in local])
        yield whole[:count]


def predict(
    model: Classifier,
    x: Any,
    batch_size: int | None,
    verbose: int | str,
    steps: int | None,
) -> np.ndarray:
    """Embeddings under a progress bar; args as of `Classifier.predict`."""
    x = user_data.in_order(x)
    if user_data.is_ours(x):
        x = x.epoch(0)
    if isinstance(x, tf.data.Dataset):
        user_data.check_endless(x, steps, "steps")
        x = x.take(steps) if steps else x
        count = int(x.cardinality())
        parts = _of_batches(model, x, batch_size)
    else:
        x, size = np.asarray(x), batch_size or BATCH
        count = -(-len(x) // _padded(model, size, x))
        parts = model.embed_in_parts(x, size) if len(x) else [model.embed(x)]
    bar = keras.utils.Progbar(
        count if count > 0 else None, verbose=1 if verbose == "auto" else verbose
    )
    embeddings = []
    for part in parts:
        embeddings.append(part)
        bar.update(len(embeddings), finalize=False)
    bar.update(len(embeddings), finalize=True)
    if not embeddings:
        raise ValueError("There is nothing to embed: the data set is empty.")
    return np.concatenate(embeddings)


def _of_batches(model, dataset, batch_size):
    for element in dataset:
        images = element[0] if isinstance(element, tuple) else element
        yield model.embed(images, batch_size or len(images))


def _padded(model, batch_size, images):
    """Images of a batch: at most all of them, and equally many on each replica."""
    replicas = model.strategy.num_replicas_in_sync
    return batching.padded_size(max(1, min(batch_size, len(images))), replicas)
