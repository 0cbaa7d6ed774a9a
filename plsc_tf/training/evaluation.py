"""`Classifier.evaluate`: loss and metrics over labeled images."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.data.faults import READ_ERRORS
from plsc_tf.data.images import check_range
from plsc_tf.parallel import collectives
from plsc_tf.training import batching, feed
from plsc_tf.training.position import EXAMPLES, WEIGHTS, Position

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier


def function(model: Classifier) -> Callable:
    """A `tf.function` of a per-replica batch that runs `evaluate_step` on replicas."""

    def evaluate_batch(batch):
        # In float32 for the reason in `embedding.function`.
        with in_float32(model.backbone):
            return model.strategy.run(evaluate_step, args=(model, *batch))

    return tf.function(evaluate_batch, autograph=False)


def evaluate(
    model: Classifier,
    function: Callable,
    data: Any,
    steps: int | None,
    callbacks: Any,
    verbose: int | str,
) -> dict[str, float]:
    """Means over the data's first epoch.

    Args:
        model: the compiled `Classifier`.
        function: what `function` made.
        data: has `batch_size` and `epoch(number)`.
        steps: cuts the data to this many batches; None: all.
        callbacks: Keras callbacks, or a `keras.callbacks.CallbackList`.
        verbose: as in Keras.

    Returns:
        `{"loss": ..., and the metrics}`.

    Raises:
        ValueError: there is no example, or a bad one, which is named.
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
    for number, batch in enumerate(_batches(model, data, steps)):
        callbacks.on_test_batch_begin(number)
        for name, value in function(batch).items():
            local = model.strategy.experimental_local_results(value)[0]
            sums[name] = sums.get(name, 0.0) + float(local)
        callbacks.on_test_batch_end(number, {})
    if not sums:
        raise ValueError("There is nothing to evaluate: no example.")
    results = Position(sums=sums).means(model.weighted_metrics)
    callbacks.on_test_end(results)
    return results


def values(results: Mapping[str, float]) -> float | list[float]:
    """Loss and metrics as Keras returns them without names."""
    values = [value for name, value in results.items() if name != "finite"]
    return values if len(values) > 1 else results["loss"]


def evaluate_step(
    model: Classifier,
    images: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    real: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Sums over a global batch, of one replica's share; nothing is updated.

    Args:
        model: the compiled `Classifier`.
        images: `[b, h, w, 3]` of this replica.
        labels: int64 `[b]`.
        weights: float32 `[b]`, 0 for padding.
        real: float32 `[b]`, 1 and for padding 0; None: the weights are just that.

    Returns:
        dict of scalars, equal on every replica: `examples`, their number; `weights`,
        their sum; `loss` and the metrics, sums over examples, of weight times value for
        the loss and weighted metrics.
    """
    dtype = keras.config.floatx()
    weights = tf.cast(weights, dtype)
    real = weights if real is None else tf.cast(real, dtype)
    embeddings = tf.cast(model(images, training=False), dtype)
    outcome = model.head.loss_and_gradients(
        embeddings,
        labels,
        weights,
        bool(model.ranked_metrics),
        step=tf.convert_to_tensor(model.optimizer.iterations),
        gradients=False,
    )
    sums = {
        EXAMPLES: tf.reduce_sum(real),
        WEIGHTS: tf.reduce_sum(weights),
        "loss": tf.reduce_sum(weights * outcome.losses),
    }
    ranks: Any = outcome.ranks
    for name, k in model.ranked_metrics.items():
        share = weights if name in model.weighted_metrics else real
        sums[name] = tf.reduce_sum(share * tf.cast(ranks < k, dtype))
    names = list(sums)
    totals = collectives.all_sum(tf.stack([sums[name] for name in names]))
    return dict(zip(names, tf.unstack(totals), strict=True))


def _batches(model, data, steps):
    """Yields per-replica batches of the data's first epoch, as of `batching.pad`."""
    parts = model.strategy.num_replicas_in_sync
    dataset = feed.prepared(model, data, data.epoch(0), parts)
    iterator = iter(dataset.take(steps) if steps else dataset)
    for number in itertools.count():
        try:
            batch = next(iterator, None)
        except READ_ERRORS as error:
            where = Position(step=number)
            raise feed.explained(data, where, error, what="data to evaluate") from error
        if batch is None:
            return
        if not number and batch[0].dtype.is_floating:
            check_range(batch[0].numpy(), "images")
        yield batching.split(model.strategy, batch)
