"""Batch-norm statistics, which differ between replicas until they are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.parallel.strategy import gather, local_replicas
from plsc_tf.training import freezing

if TYPE_CHECKING:
    from plsc_tf.training.classifier import Classifier


def synchronize(model: Classifier) -> None:
    """Gives every replica the mean of all; see `Classifier.synchronize_statistics`."""
    trainer, replicas = model.trainer, model.strategy.num_replicas_in_sync
    if not trainer.statistics_differ or replicas == 1:
        return
    for variable, mean in means(model, stacked(model)):
        variable.assign(mean)
    trainer.statistics_differ = False


def variables(model: Classifier) -> list[keras.Variable]:
    """The backbone's weights that are not trained and that replicas differ in."""
    return [
        variable
        for variable in model.backbone.non_trainable_weights
        if variable.value.dtype.is_floating and not freezing.is_frozen(variable)
    ]


def copies(model: Classifier, variable: keras.Variable) -> Sequence[tf.Variable]:
    """The replicas' values of one of them: list of `tf.Variable`."""
    return model.strategy.experimental_local_results(variable.value)


def stacked(model: Classifier) -> dict[str, np.ndarray]:
    """Values of all replicas, `{name: [replicas, ...]}`; all workers must call it."""
    differing = variables(model)
    if not differing:
        return {}
    columns = [copies(model, variable) for variable in differing]
    # In one piece: a message takes longer than what it carries.
    flat = [
        np.concatenate([column[i].numpy().ravel() for column in columns])[None]
        for i in range(len(local_replicas(model.strategy)))
    ]
    gathered, named, start = gather(model.strategy, flat), {}, 0
    for i, variable in enumerate(differing):
        size = int(np.prod(variable.shape))
        values = gathered[:, start : start + size]
        named[_name(i)] = values.reshape(-1, *variable.shape)
        start += size
    return named


def means(model: Classifier, values: Any) -> list[tuple[keras.Variable, np.ndarray]]:
    """What all replicas would agree on: `[(keras.Variable, array)]`.

    Args:
        model: the `Classifier`.
        values: of `stacked`.
    """
    return [
        (variable, np.mean(values[_name(i)], axis=0))
        for i, variable in enumerate(variables(model))
    ]


def assign(model: Classifier, values: Any) -> None:
    """Restores the statistics of every replica.

    Args:
        model: the `Classifier`.
        values: of `stacked`, from as many replicas.
    """
    here = local_replicas(model.strategy)
    for i, variable in enumerate(variables(model)):
        local = values[_name(i)][here.start : here.stop]
        for copy, value in zip(copies(model, variable), local, strict=True):
            copy.assign(value)


def _name(i):
    return f"statistics/{i:04d}"
