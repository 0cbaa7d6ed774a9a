"""Contains the loss scale, which lifts small gradients into the range of float16."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.parallel.collectives import local_copy, replica_id, replicated_scalar
from plsc_tf.requirements import require

# Paddle's rule never goes below this scale, and MindSpore refuses a smaller one.
MINIMUM = 1.0
# A dynamic scale of 2^24 takes 48 skips to reach 1: 24 halvings with two skips each. If
# a fixed scale skips more steps in a row, training makes no progress.
MAX_SKIPS_IN_A_ROW = 48


@dataclasses.dataclass(eq=False)
class LossScale:
    """PLSC's loss scale, dynamic or fixed; create it inside `strategy.scope()`.

    The step multiplies the objective by `value()`, divides the gradients by it, and
    calls `update` once with a flag that says if all gradients were finite. The dynamic
    rule is Paddle's `update_loss_scaling`
    (`paddle/phi/kernels/impl/amp_kernel_impl.h`):

    - A finite step is good and resets the count of bad steps. After
      `incr_every_n_steps` good steps in a row, the scale is multiplied by `incr_ratio`
      unless it would overflow float32, and the count of good steps is reset.
    - Any other step is bad and resets the count of good steps. After
      `decr_every_n_nan_or_inf` bad steps in a row, a scale above 1 is multiplied by
      `decr_ratio`, but stays at least 1, and the count of bad steps is reset.

    Args:
        initial: scale of the first step, at least 1 (PLSC: init_loss_scaling).
        dynamic: whether to apply the dynamic rule (PLSC: use_dynamic_loss_scaling);
            False keeps `initial` (FastNN and MindSpore: loss_scale).
        incr_every_n_steps: number of good steps in a row before the scale grows.
        decr_every_n_nan_or_inf: number of bad steps in a row before the scale shrinks.
        incr_ratio: factor by which the scale grows, above 1.
        decr_ratio: factor by which the scale shrinks, between 0 and 1.

    Raises:
        ValueError: a number is out of range.
    """

    initial: float = 1.0
    dynamic: bool = True
    _: dataclasses.KW_ONLY
    incr_every_n_steps: int = 2000
    decr_every_n_nan_or_inf: int = 2
    incr_ratio: float = 2.0
    decr_ratio: float = 0.5

    def __post_init__(self) -> None:
        fits = MINIMUM <= self.initial <= float(np.finfo(np.float32).max)
        rule = f"initial must be at least {MINIMUM:g} and fit in float32"
        require(fits, rule, initial=self.initial)
        for name in ("incr_every_n_steps", "decr_every_n_nan_or_inf"):
            steps = getattr(self, name)
            fits = steps >= 1 and steps == int(steps)
            require(fits, f"{name} must be a positive integer", **{name: steps})
        ratio = self.incr_ratio
        require(1 < ratio < math.inf, "incr_ratio must be above 1", incr_ratio=ratio)
        ratio = self.decr_ratio
        require(0 < ratio < 1, "decr_ratio must be between 0 and 1", decr_ratio=ratio)
        self._variables = {
            "scale": replicated_scalar(self.initial, tf.float32, "loss_scale"),
            "good_steps": replicated_scalar(0, tf.int64, "good_steps"),
            "bad_steps": replicated_scalar(0, tf.int64, "bad_steps"),
        }

    def value(self) -> tf.Tensor:
        """Returns the next step's scale, a float32 scalar; works in replica context."""
        return tf.convert_to_tensor(self._variables["scale"])

    def update(self, finite: tf.Tensor, aborted: tf.Tensor | None = None) -> None:
        """Updates the scale after a step; call it in replica context or eagerly.

        Args:
            finite: bool scalar, True if all gradients were finite on all replicas.
            aborted: bool scalar, True to change nothing because the step was aborted.
        """
        finite = tf.convert_to_tensor(finite, tf.bool)
        old = {name: tf.convert_to_tensor(v) for name, v in self._variables.items()}
        scale, zero = old["scale"], tf.zeros([], tf.int64)
        bad = tf.where(finite, zero, old["bad_steps"] + 1)
        new = {"bad_steps": bad}
        if self.dynamic:
            good = tf.where(finite, old["good_steps"] + 1, zero)
            grows = good >= int(self.incr_every_n_steps)
            shrinks = (bad >= int(self.decr_every_n_nan_or_inf)) & (scale > MINIMUM)
            larger = scale * float(self.incr_ratio)
            larger = tf.where(tf.math.is_finite(larger), larger, scale)
            smaller = tf.maximum(scale * float(self.decr_ratio), MINIMUM)
            smaller = tf.where(shrinks, smaller, scale)
            new["scale"] = tf.where(grows, larger, smaller)
            new["good_steps"] = tf.where(grows, zero, good)
            new["bad_steps"] = tf.where(shrinks, zero, bad)
        for name, now in new.items():
            variable = self._variables[name]
            own = local_copy(variable)
            if own is variable and tf.distribute.has_strategy() and replica_id():
                return  # created outside the scope: the first replica changes it
            own.assign(now if aborted is None else tf.where(aborted, old[name], now))

    def explains_skip(self) -> bool:
        """Returns whether too high a scale can explain that the last step was skipped.

        It cannot if the scale was already at its minimum, or if a fixed scale has been
        too high for more than `MAX_SKIPS_IN_A_ROW` steps.
        """
        state = self.state()
        if not self.dynamic and state["bad_steps"] > MAX_SKIPS_IN_A_ROW:
            return False
        # Only a step that has just lowered the scale resets the count.
        return state["scale"] > MINIMUM or not state["bad_steps"]

    def state(self) -> dict[str, float | int]:
        """Returns the state for a checkpoint: "scale", "good_steps", "bad_steps"."""
        return {name: v.numpy().item() for name, v in self._variables.items()}

    def restore(self, state: dict) -> None:
        """Restores a state; a fixed scale keeps its initial value.

        Args:
            state: dict returned by `state()`.
        """
        if self.dynamic:
            for name, variable in self._variables.items():
                variable.assign(state[name])


def from_keras(
    optimizer: Any, loss_scale: LossScale | None, policy: str
) -> tuple[keras.optimizers.Optimizer, LossScale | None]:
    """Replaces Keras's loss scaling with a `LossScale` that has the same settings.

    `keras.optimizers.LossScaleOptimizer` checks only one replica's gradients and none
    of the head's shards. A `Classifier` needs a check of all gradients, because it
    applies a step on all replicas or on none.

    Call it inside `strategy.scope()`.

    Args:
        optimizer: a Keras optimizer, possibly a `LossScaleOptimizer`.
        loss_scale: the `LossScale` passed to `compile`, or None.
        policy: name of the model's dtype policy. As in Keras's `compile`, the loss of
            a model in mixed_float16 is scaled.

    Returns:
        (the optimizer without Keras's loss scaling, `LossScale` or None).

    Raises:
        ValueError: there are two loss scales.
    """
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        rule = "There must be one loss scale, not a LossScaleOptimizer and loss_scale"
        advice = "Pass its inner_optimizer, or leave out all that sets loss_scale"
        require(loss_scale is None, rule, advice)
        reason = (
            "As LossScaleOptimizer checks the gradients of one replica only, "
            f"{type(optimizer.inner_optimizer).__name__} is used with"
        )
    elif loss_scale is None and policy == "mixed_float16":
        reason = "The dtype policy is mixed_float16, so compile adds"
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    else:
        return optimizer, loss_scale
    initial, growth_steps = optimizer.initial_scale, optimizer.dynamic_growth_steps
    text = "%s plsc_tf.LossScale(%g, incr_every_n_steps=%d, decr_every_n_nan_or_inf=1)."
    logging.warning(text, reason, initial, growth_steps)
    return optimizer.inner_optimizer, LossScale(
        initial, incr_every_n_steps=growth_steps, decr_every_n_nan_or_inf=1
    )
