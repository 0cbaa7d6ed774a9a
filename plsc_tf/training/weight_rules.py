"""Freezes layers, or gives weights their own learning rate or weight decay."""

import dataclasses
import re
from collections.abc import Mapping

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.requirements import nearest, prefix_errors, require


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
    layers = _layers_named(network, pattern, "freeze_layers")
    for layer in layers:
        layer.trainable = False
    return [layer.name for layer in layers]


def _layers_named(network, pattern, option):
    """Returns the layers with weights whose names match a regular expression."""
    rule = f"{option}={pattern!r} must be a regular expression, such as conv1|conv2"
    with prefix_errors(rule, re.error):
        expression = re.compile(pattern)
    layers = [layer for layer in network.layers if layer.weights]
    matches = [layer for layer in layers if expression.match(layer.name)]
    names = [layer.name for layer in layers]
    near = ", ".join(nearest(pattern, names, most=3) or names[:3])
    rule = f"{option} must match a layer with weights in '{network.name}'"
    advice = f"The network has {len(names)} such layers, for example {near}"
    require(matches, rule, advice, **{option: repr(pattern)})
    ends = f"from {matches[0].name} to {matches[-1].name}"
    logging.info(f"{option}={pattern}: {len(matches)} of {len(names)} layers, {ends}.")
    return matches


def is_frozen(variable: keras.Variable) -> bool:
    """Returns whether a Keras variable was created as trainable but is frozen.

    Args:
        variable: one of a model's `non_trainable_variables`. These also include moving
            statistics and random states, which were not created as trainable.
    """
    return not variable.trainable and bool(variable.value.trainable)


@dataclasses.dataclass(frozen=True)
class WeightRule:
    """Learning rate and weight decay of some weights (Paddle: a ParamAttr).

    Attributes:
        rate_factor: factor by which the learning rate is multiplied.
        weight_decay: replaces the optimizer's weight decay, or None to keep it. It has
            the optimizer's form: the L2 penalty of Momentum and Lars, Keras's decoupled
            decay, or an L2 penalty for other optimizers. Weights that the optimizer
            excludes from weight decay remain excluded.
    """

    rate_factor: float = 1.0
    weight_decay: float | None = None

    def rate(self, rate: tf.Tensor) -> tf.Tensor:
        """Returns the learning rate of these weights for the optimizer's `rate`."""
        return rate if self.rate_factor == 1 else self.rate_factor * rate

    def decay(self, optimizer: keras.optimizers.Optimizer, l2: float) -> float:
        """Sets an optimizer's weight decay to the one of these weights.

        Args:
            optimizer: a Keras optimizer, changed in place.
            l2: factor of the L2 penalty that is added to all gradients.

        Returns:
            factor of the L2 penalty to add to the gradients of these weights.
        """
        if self.weight_decay is None:
            return l2
        if hasattr(optimizer, "l2"):
            optimizer.l2 = self.weight_decay
        elif optimizer.weight_decay is not None:
            optimizer.weight_decay = self.weight_decay
        else:
            return self.weight_decay
        return 0.0


# The rule of all other weights: the optimizer's own rate and decay.
COMMON = WeightRule()


def of_layers(
    network: keras.Model,
    rate_factors: Mapping[str, float],
    weight_decays: Mapping[str, float],
) -> dict[int, WeightRule]:
    """Returns the rules of a network's trainable weights, `{id: WeightRule}`.

    Args:
        network: a built Keras model.
        rate_factors: `{regular expression: factor of the learning rate}`. Expressions
            match the beginning of layer names, as with freeze_layers; if several match,
            the last one applies.
        weight_decays: `{regular expression: weight decay}`, matched in the same way.

    Raises:
        ValueError: a pattern names no layer with trainable weights.
    """
    rules: dict[int, WeightRule] = {}
    for option, field, factors in (
        ("learning_rate_factors", "rate_factor", rate_factors),
        ("weight_decay_on", "weight_decay", weight_decays),
    ):
        for pattern, factor in factors.items():
            layers = _layers_named(network, pattern, option)
            weights = [v for layer in layers for v in layer.trainable_weights]
            rule = f"{option} must match at least one layer that is not frozen"
            require(weights, rule, **{option: f"{pattern}:{factor:g}"})
            for variable in weights:
                before = rules.get(id(variable), COMMON)
                rules[id(variable)] = dataclasses.replace(before, **{field: factor})
    return rules
