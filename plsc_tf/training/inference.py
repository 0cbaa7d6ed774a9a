"""Implements `evaluate`, `predict` and `embed` of `Classifier`, in inference mode."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.data import images as data_images
from plsc_tf.parallel import collectives
from plsc_tf.parallel.strategy import gather
from plsc_tf.requirements import require
from plsc_tf.training import batching, feed, user_data
from plsc_tf.training.circular import Classifier

# Default number of images per batch (PLSC: test_batch_size).
BATCH = 120


def compiled(model: Classifier, step: Callable) -> Callable:
    """Returns a `tf.function` that runs a step on a per-replica batch.

    Args:
        model: the `Classifier`.
        step: `embed_step` or `evaluate_step`.
    """

    def run(batch):
        # Half precision is for training only. In the first steps, moving statistics lag
        # behind the batch statistics, and badly normalized values overflow float16.
        with in_float32(model.backbone):
            return model.strategy.run(functools.partial(step, model), args=batch)

    return tf.function(run, autograph=False)


def embed_step(model: Classifier, images: tf.Tensor) -> tf.Tensor:
    """Computes the float32 embeddings of a replica's images `[b, h, w, 3]`."""
    return tf.cast(model(images, training=False), tf.float32)


def in_parts(
    model: Classifier, function: Callable, images: Any, batch_size: int
) -> Iterator[np.ndarray]:
    """Yields embeddings batch by batch.

    Args:
        model: the `Classifier`.
        function: function that takes a per-replica batch (images,) and returns its
            embeddings.
        images: `[N, h, w, 3]`.
        batch_size: images per batch over all replicas.
    """
    batching.check_images(np.shape(images), model.backbone.input_shape, resize=True)
    data_images.check_range(np.asarray(images), "images")
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
        yield gather(model.strategy, [part.numpy() for part in local])[:count]


def predict(
    model: Classifier,
    x: Any,
    batch_size: int | None,
    verbose: int | str,
    steps: int | None,
) -> np.ndarray:
    """Computes embeddings with a progress bar; arguments as in `Classifier.predict`."""
    x = user_data.in_order(x)
    if user_data.is_ours(x):
        x = x.epoch(0)
    if isinstance(x, tf.data.Dataset):
        user_data.check_endless(x, steps, "steps")
        x = x.take(steps) if steps else x
        count = int(x.cardinality())
        images = (one[0] if isinstance(one, tuple) else one for one in x)
        parts: Iterable = (model.embed(one, batch_size or len(one)) for one in images)
    else:
        x, size = np.asarray(x), batch_size or BATCH
        count = -(-len(x) // _padded(model, size, x))
        parts = model.embed_in_parts(x, size) if len(x) else [model.embed(x)]
    total = count if count > 0 else None
    bar = keras.utils.Progbar(total, verbose=1 if verbose == "auto" else verbose)
    embeddings = []
    for part in parts:
        embeddings.append(part)
        bar.update(len(embeddings), finalize=False)
    bar.update(len(embeddings), finalize=True)
    require(embeddings, "There is nothing to embed: the data set is empty")
    return np.concatenate(embeddings)


def _padded(model, batch_size, images):
    """Returns the batch size, limited to all images and divisible by the replicas."""
    replicas = model.strategy.num_replicas_in_sync
    return batching.padded_size(max(1, min(batch_size, len(images))), replicas)


def evaluate(
    model: Classifier,
    function: Callable,
    data: Any,
    steps: int | None,
    callbacks: Any,
    verbose: int | str,
) -> dict[str, float]:
    """Computes the means of the loss and the metrics over the data's first epoch.

    Args:
        model: the compiled `Classifier`.
        function: the result of `compiled` for `evaluate_step`.
        data: object with `batch_size` and `epoch(number)`.
        steps: maximum number of batches, or None for all.
        callbacks: Keras callbacks, or a `keras.callbacks.CallbackList`.
        verbose: as in Keras.

    Returns:
        `{name: mean}` with "loss" and the metrics.

    Raises:
        ValueError: there are no examples, or an example is bad; names the example.
    """
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks = keras.callbacks.CallbackList(
            callbacks,
            model=model,
            add_progbar=verbose != 0,
            verbose=1 if verbose == "auto" else verbose,
            epochs=1,
            steps=steps or getattr(data, "steps_per_epoch", None),
        )
    callbacks.on_test_begin()
    sums: dict[str, float] = {}
    size = batching.padded_size(data.batch_size, model.strategy.num_replicas_in_sync)
    batches = itertools.islice(data.epoch(0), steps)
    for number, batch in enumerate(feed.padded_batches(model, data, batches, size)):
        callbacks.on_test_batch_begin(number)
        for name, value in function(batching.split(model.strategy, batch)).items():
            local = model.strategy.experimental_local_results(value)[0]
            sums[name] = sums.get(name, 0.0) + float(local)
        callbacks.on_test_batch_end(number, {})
    require(sums, "The data to evaluate has no examples, or steps is 0")
    results = feed.Position(sums=sums).means(model.weighted_metrics)
    callbacks.on_test_end(results)
    return results


def values(results: Mapping[str, float]) -> float | list[float]:
    """Returns the loss, or a list of loss and metrics, as Keras does without names."""
    values = [value for name, value in results.items() if name != "finite"]
    return values if len(values) > 1 else results["loss"]


def evaluate_step(
    model: Classifier,
    images: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    real: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Computes sums over a global batch from each replica's part; updates nothing.

    Args:
        model: the compiled `Classifier`.
        images: this replica's images `[b, h, w, 3]`.
        labels: int64 `[b]`.
        weights: float32 `[b]`, 0 for padding.
        real: float32 `[b]`, 1 for examples and 0 for padding; None if `weights` are
            exactly that.

    Returns:
        dict of scalars, equal on every replica: `examples` (number of examples),
        `weights` (sum of their weights), and the sums of `loss` and each metric over
        the examples. The loss and weighted metrics are summed as weight · value.
    """
    dtype = keras.config.floatx()
    weights = tf.cast(weights, dtype)
    real = weights if real is None else tf.cast(real, dtype)
    embeddings = tf.cast(model(images, training=False), dtype)
    given = embeddings, labels, weights, bool(model.ranked_metrics)
    step = tf.convert_to_tensor(model.optimizer.iterations)
    outcome = model.head.loss_and_gradients(*given, step=step, gradients=False)
    sums = {feed.EXAMPLES: tf.reduce_sum(real), feed.WEIGHTS: tf.reduce_sum(weights)}
    sums["loss"] = tf.reduce_sum(weights * outcome.losses)
    ranks: Any = outcome.ranks
    for name, k in model.ranked_metrics.items():
        share = weights if name in model.weighted_metrics else real
        sums[name] = tf.reduce_sum(share * tf.cast(ranks < k, dtype))
    return collectives.sum_scalars(sums)
