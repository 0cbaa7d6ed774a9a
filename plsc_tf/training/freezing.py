"""Layers that keep the weights they start with."""

from __future__ import annotations

import re

import keras
from absl import logging

from plsc_tf.hints import nearest


def freeze(network: keras.Model, pattern: str) -> list[str]:
    """Excludes layers from training: their weights and their moving statistics stay.

    Batch normalisations among them work as at inference.

    Args:
        network: a built Keras model, before it is compiled.
        pattern: regular expression that matches the beginning of the layers' names.

    Returns:
        names of the layers, of those that have weights.

    Raises:
        ValueError: no regular expression, or no layer with weights matches.
    """
    matches = layers_named(network, pattern, "freeze_layers")
    for layer in matches:
        layer.trainable = False
    logging.info(
        "%d of %d layers are frozen, from %s to %s.",
        len(matches),
        sum(1 for layer in network.layers if layer.weights),
        matches[0].name,
        matches[-1].name,
    )
    return [layer.name for layer in matches]


def layers_named(network: keras.Model, pattern: str, option: str) -> list:
    """The layers with weights whose names begin as a regular expression says.

    Args:
        network: a built Keras model.
        pattern: the regular expression.
        option: name of the option, for errors.

    Raises:
        ValueError: no regular expression, or no layer with weights matches.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(
            f"{option} must be a regular expression, such as conv1|conv2. "
            f"Received: {option}={pattern!r} ({error})"
        ) from error
    layers = [layer for layer in network.layers if layer.weights]
    matches = [layer for layer in layers if expression.match(layer.name)]
    if not matches:
        names = [layer.name for layer in layers]
        near = nearest(pattern, names, most=3) or names[:3]
        raise ValueError(
            f"{option} names no layer of '{network.name}' that has weights. "
            f"Received: {option}={pattern!r}. There are {len(names)}, such as "
            f"{', '.join(near)}."
        )
    return matches


def is_frozen(variable: keras.Variable) -> bool:
    """Whether a Keras variable was made to be trained, and is not.

    Args:
        variable: one of a model's `non_trainable_variables`, whose moving statistics
            and random states were never to be trained.
    """
    return not variable.trainable and bool(variable.value.trainable)
