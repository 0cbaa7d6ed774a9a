"""Batch-norm statistics, of which every replica has its own between two averages."""

import numpy as np


def variables(model):
    """The backbone's weights that are not trained and that replicas differ in."""
    return [
        variable
        for variable in model.backbone.non_trainable_weights
        if variable.value.dtype.is_floating
    ]


def copies(model, variable):
    """The replicas' values of one of them: list of `tf.Variable`."""
    return model.strategy.experimental_local_results(variable.value)


def mean(model, variable):
    """What all replicas would agree on, as numpy."""
    return np.mean([copy.numpy() for copy in copies(model, variable)], axis=0)


def stacked(model):
    """Every replica's own: `{name: [replicas, ...]}`."""
    return {
        f"statistics/{i:04d}": np.stack([c.numpy() for c in copies(model, variable)])
        for i, variable in enumerate(variables(model))
    }


def assign(model, values):
    """Gives every replica its own again.

    Args:
        model: the `Classifier`.
        values: of `stacked`, from as many replicas.
    """
    for i, variable in enumerate(variables(model)):
        own = values[f"statistics/{i:04d}"]
        for copy, value in zip(copies(model, variable), own, strict=True):
            copy.assign(value)
