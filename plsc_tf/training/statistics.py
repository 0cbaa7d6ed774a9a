"""Batch-norm statistics, of which every replica has its own between two averages."""

import numpy as np

from plsc_tf.parallel.strategy import gather, local_replicas
from plsc_tf.training import freezing


def variables(model):
    """The backbone's weights that are not trained and that replicas differ in."""
    return [
        variable
        for variable in model.backbone.non_trainable_weights
        if variable.value.dtype.is_floating and not freezing.is_frozen(variable)
    ]


def copies(model, variable):
    """The replicas' values of one of them: list of `tf.Variable`."""
    return model.strategy.experimental_local_results(variable.value)


def stacked(model):
    """Every replica's own: `{name: [replicas, ...]}`; all workers must ask for them."""
    found = variables(model)
    if not found:
        return {}
    columns = [copies(model, variable) for variable in found]
    # In one piece: a message takes longer than what it carries.
    flat = [
        np.concatenate([column[i].numpy().ravel() for column in columns])[None]
        for i in range(len(local_replicas(model.strategy)))
    ]
    gathered, named, start = gather(model.strategy, flat), {}, 0
    for i, variable in enumerate(found):
        size = int(np.prod(variable.shape))
        values = gathered[:, start : start + size]
        named[_name(i)] = values.reshape(-1, *variable.shape)
        start += size
    return named


def means(model, values):
    """What all replicas would agree on: `[(keras.Variable, array)]`.

    Args:
        model: the `Classifier`.
        values: of `stacked`.
    """
    return [
        (variable, np.mean(values[_name(i)], axis=0))
        for i, variable in enumerate(variables(model))
    ]


def assign(model, values):
    """Gives every replica its own again.

    Args:
        model: the `Classifier`.
        values: of `stacked`, from as many replicas.
    """
    here = local_replicas(model.strategy)
    for i, variable in enumerate(variables(model)):
        own = values[_name(i)][here.start : here.stop]
        for copy, value in zip(copies(model, variable), own, strict=True):
            copy.assign(value)


def _name(i):
    return f"statistics/{i:04d}"
