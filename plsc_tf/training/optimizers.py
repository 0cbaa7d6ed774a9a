"""Contains Momentum and LARS, Keras optimizers that can also update a sharded head."""

import math
from typing import Any

import keras
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.requirements import require


@keras.saving.register_keras_serializable("plsc_tf")
class Momentum(keras.optimizers.Optimizer):
    """v = momentum · v + gradient + l2 · w;  w −= learning_rate · v.

    Keras's SGD stores learning_rate · v in its slot, which gives different results when
    the rate changes, and its `weight_decay` is decoupled from the momentum. Here the
    slot does not include the rate, and the L2 term goes through the momentum, as in
    PLSC (Paddle's Momentum with L2Decay) and arcface_torch (torch.optim.SGD).

    Args:
        learning_rate: float, or a Keras `LearningRateSchedule`.
        momentum: decay of the velocity.
        l2: factor of the L2 penalty's gradient (PLSC: 5e-4); weights excluded with
            `exclude_from_weight_decay` have no penalty.
        **kwargs: arguments of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: momentum is outside [0, 1) or l2 is negative.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        momentum: float = 0.9,
        l2: float = 5e-4,
        name: str = "momentum",
        **kwargs,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        require(0 <= momentum < 1, "momentum must be in [0, 1)", momentum=momentum)
        require(l2 >= 0, "l2 must not be negative", l2=l2)
        self.momentum, self.l2 = momentum, l2

    def build(self, variables: list[keras.Variable]) -> None:
        """Creates one velocity per variable; without momentum, none."""
        if self.built:
            return
        super().build(variables)
        moving = variables if self.momentum else []
        self._velocities = self.add_optimizer_variables(moving, "velocity")

    def update_step(
        self, gradient: tf.Tensor, variable: keras.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable in place; see the class for the rule."""
        learning_rate = keras.ops.cast(learning_rate, variable.dtype)
        gradient = keras.ops.cast(gradient, variable.dtype)
        if self.l2 and private_apis.uses_weight_decay(self, variable):
            gradient = gradient + self.l2 * keras.ops.convert_to_tensor(variable)
        moved = self._velocity_after(variable, gradient)
        self.assign_sub(variable, learning_rate * moved)

    def _velocity_after(self, variable, change):
        """Updates a variable's velocity and returns it."""
        if not self.momentum:
            return change
        velocity = self._velocities[self._get_variable_index(variable)]
        moved = self.momentum * keras.ops.convert_to_tensor(velocity) + change
        self.assign(velocity, moved)
        return moved

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return super().get_config() | {"momentum": self.momentum, "l2": self.l2}


@keras.saving.register_keras_serializable("plsc_tf")
class Lars(Momentum):
    """v = momentum · v + learning_rate · t · (gradient + l2 · w);  w −= v.

    LARS (You, Gitman, Ginsburg, arXiv:1708.03888, algorithm 1) is for large batches.
    Each weight has its own trust ratio t = coefficient · ‖w‖ / (‖gradient‖ + l2 · ‖w‖);
    t is 1 if ‖w‖ or the denominator is 0. Vectors (biases, scales and offsets of
    normalization layers, slopes of PReLU) have t = 1 and no L2 penalty, as in the
    published large-batch recipes for ResNet-50 (MLPerf). The norms of a sharded weight
    are computed over all shards, see `plsc_tf.training.updates.Updater`.

    Args:
        learning_rate: float, or a Keras `LearningRateSchedule`.
        coefficient: η in the paper.
        **kwargs: further arguments of `Momentum`; l2 is β in the paper.

    Raises:
        ValueError: momentum is outside [0, 1), or another number is negative.
    """

    def __init__(
        self, learning_rate: Any = 0.1, *, coefficient: float = 0.001, **kwargs
    ) -> None:
        super().__init__(learning_rate, name=kwargs.pop("name", "lars"), **kwargs)
        rule = "coefficient must be positive"
        require(coefficient > 0, rule, coefficient=coefficient)
        self.coefficient = coefficient
        # False for rows of a larger weight: the rate already has their trust ratio.
        self.whole = True

    def trust(self, weight_norm: tf.Tensor, gradient_norm: tf.Tensor) -> tf.Tensor:
        """Computes a weight's scalar trust ratio from its norm and its gradient's."""
        bound = gradient_norm + self.l2 * weight_norm
        known = keras.ops.logical_and(weight_norm > 0, bound > 0)
        ratio = self.coefficient * weight_norm / keras.ops.where(known, bound, 1.0)
        return keras.ops.where(known, ratio, keras.ops.ones_like(ratio))

    def update_step(
        self, gradient: tf.Tensor, variable: keras.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable in place; see the class for the rule."""
        rate = keras.ops.cast(learning_rate, variable.dtype)
        gradient = keras.ops.cast(gradient, variable.dtype)
        value = keras.ops.convert_to_tensor(variable)
        if not self._is_vector(variable):
            if self.whole:
                # `keras.ops.norm` takes no kernels of convolutions.
                rate = rate * self.trust(tf.norm(value), tf.norm(gradient))
            if private_apis.uses_weight_decay(self, variable):
                gradient = gradient + self.l2 * value
        self.assign_sub(variable, self._velocity_after(variable, rate * gradient))

    def _is_vector(self, variable):
        """Returns whether a weight is a vector; rows of a matrix are not."""
        shape = tuple(variable.shape)
        if not self.whole:
            return len(shape) < 2  # noqa: PLR2004 - rows of a matrix
        return math.prod(shape) == max(shape, default=1)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        return {**super().get_config(), "coefficient": self.coefficient}
