"""PLSC's and PyTorch's momentum, as a Keras optimizer."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from plsc_tf import private_apis


@keras.saving.register_keras_serializable("plsc_tf")
class Momentum(keras.optimizers.Optimizer):
    """v = momentum · v + gradient + l2 · w;  w −= learning_rate · v.

    Keras's SGD keeps learning_rate · v in its slot, which differs whenever the rate
    changes, and its `weight_decay` is decoupled from the momentum. Here the rate
    stays outside and the L2 term goes through the momentum, as in PLSC (Paddle's
    Momentum with L2Decay) and arcface_torch (torch.optim.SGD).

    Args:
        learning_rate: float, or a Keras `LearningRateSchedule`.
        momentum: decay of the velocity.
        l2: factor of the L2 penalty's gradient (PLSC: 5e-4); weights named by
            `exclude_from_weight_decay` have none.
        nesterov: look ahead by one step, as torch.optim.SGD does.
        **kwargs: those of `keras.optimizers.Optimizer`.

    Raises:
        ValueError: momentum is outside [0, 1) or l2 is negative.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        momentum: float = 0.9,
        l2: float = 5e-4,
        nesterov: bool = False,
        name: str = "momentum",
        **kwargs,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        if not 0 <= momentum < 1:
            raise ValueError(
                f"momentum must be in [0, 1). Received: momentum={momentum}"
            )
        if l2 < 0:
            raise ValueError(f"l2 must not be negative. Received: l2={l2}")
        self.momentum = momentum
        self.l2 = l2
        self.nesterov = nesterov

    def build(self, variables: list[keras.Variable]) -> None:
        """Makes one velocity per variable."""
        if self.built:
            return
        super().build(variables)
        self._velocities = self.add_optimizer_variables(variables, "velocity")

    def update_step(
        self, gradient: tf.Tensor, variable: keras.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable in place; see the class for the rule."""
        learning_rate = keras.ops.cast(learning_rate, variable.dtype)
        gradient = keras.ops.cast(gradient, variable.dtype)
        if self.l2 and private_apis.uses_weight_decay(self, variable):
            gradient = gradient + self.l2 * keras.ops.convert_to_tensor(variable)
        velocity = self._velocities[self._get_variable_index(variable)]
        moved = self.momentum * keras.ops.convert_to_tensor(velocity) + gradient
        self.assign(velocity, moved)
        direction = gradient + self.momentum * moved if self.nesterov else moved
        self.assign_sub(variable, learning_rate * direction)

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "l2": self.l2,
            "nesterov": self.nesterov,
        }
