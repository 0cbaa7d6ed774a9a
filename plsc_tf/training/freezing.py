"""Freezes layers, which keep their initial weights during training."""

import re

import keras
from absl import logging

from plsc_tf.hints import nearest


def freeze(network: keras.Model, pattern: str) -> list[str]:
    """Freezes layers: their weights and moving statistics do not change in training.

    Frozen batch-normalization layers run in inference mode.

    Args:
        network: a built Keras model, not compiled yet.
        pattern: regular expression that matches the beginning of the layers' names.

    Returns:
        names of the frozen layers; layers without weights are not included.

    Raises:
        ValueError: the pattern is not a regular expression or matches no layer with
            weights.
    """
    matches = layers_named(network, pattern, "freeze_layers")
    for layer in matches:
        layer.trainable = False
    count = sum(1 for layer in network.layers if layer.weights)
    logging.info(
        f"{len(matches)} of {count} layers are frozen, from {matches[0].name} to "
        f"{matches[-1].name}."
    )
    return [layer.name for layer in matches]


def layers_named(network: keras.Model, pattern: str, option: str) -> list:
    """Returns the layers with weights whose names match a regular expression.

    Args:
        network: a built Keras model.
        pattern: regular expression that matches the beginning of the layers' names.
        option: name of the option, for error messages.

    Raises:
        ValueError: the pattern is not a regular expression or matches no layer with
            weights.
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
            f"{option} matches no layer with weights in '{network.name}'. Received: "
            f"{option}={pattern!r}. The network has {len(names)} such layers, for "
            f"example {', '.join(near)}."
        )
    return matches


def is_frozen(variable: keras.Variable) -> bool:
    """Returns whether a Keras variable was created as trainable but is frozen.

    Args:
        variable: one of a model's `non_trainable_variables`. These also include moving
            statistics and random states, which were not created as trainable.
    """
    return not variable.trainable and bool(variable.value.trainable)
