"""The factor that lifts small gradients into the range of float16."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from plsc_tf.heads.margins import require

# Paddle's rule never goes below this, and MindSpore refuses less.
MINIMUM = 1.0
# More skips in a row than a scale of 2^24 needs down to 1 are no overflow of a scale
# that was too high: 48 by halves, twice at each.
HIGH = 2.0**24
MIN_SKIPS_IN_A_ROW = 48
# Of keras.optimizers.LossScaleOptimizer: the default initial scale.
KERAS_INITIAL = 2.0**15
KERAS_GROWTH_STEPS = 2000


class LossScale:
    """Loss scale of PLSC, dynamic or fixed; make it inside `strategy.scope()`.

    The step multiplies the objective by `value()`, divides the gradients by it, and
    calls `update` once with whether all of them were finite. The dynamic rule is
    Paddle's `update_loss_scaling` (`paddle/phi/kernels/impl/amp_kernel_impl.h`):

    - a finite step resets the count of bad steps; the `incr_every_n_steps`-th of
      them in a row multiplies the scale by `incr_ratio`, unless that is more than
      float32 holds, and resets their count too;
    - any other step resets the count of good steps; the `decr_every_n_nan_or_inf`-th
      in a row multiplies the scale by `decr_ratio`, but not to less than 1, and
      resets their count too.

    Args:
        initial: scale of the first step, at least 1 (PLSC: init_loss_scaling).
        dynamic: whether the rule applies (PLSC: use_dynamic_loss_scaling); False
            keeps `initial` (FastNN and MindSpore: loss_scale).
        incr_every_n_steps: finite steps in a row before the scale grows.
        decr_every_n_nan_or_inf: other steps in a row before it shrinks.
        incr_ratio: factor of growth, above 1.
        decr_ratio: factor of shrinking, between 0 and 1.

    Raises:
        ValueError: a number is out of its range.
    """

    def __init__(
        self,
        initial: float = 1.0,
        dynamic: bool = True,
        *,
        incr_every_n_steps: int = 2000,
        decr_every_n_nan_or_inf: int = 2,
        incr_ratio: float = 2.0,
        decr_ratio: float = 0.5,
    ) -> None:
        fits = MINIMUM <= initial <= float(np.finfo(np.float32).max)
        rule = f"initial must be at least {MINIMUM:g} and fit in float32"
        require(fits, rule, initial=initial)
        self._every = {
            "incr_every_n_steps": incr_every_n_steps,
            "decr_every_n_nan_or_inf": decr_every_n_nan_or_inf,
        }
        for name, steps in self._every.items():
            fits = steps >= 1 and steps == int(steps)
            require(fits, f"{name} must be a positive integer", **{name: steps})
        fits = 1 < incr_ratio < math.inf
        require(fits, "incr_ratio must be above 1", incr_ratio=incr_ratio)
        rule = "decr_ratio must lie between 0 and 1"
        require(0 < decr_ratio < 1, rule, decr_ratio=decr_ratio)
        self.dynamic = bool(dynamic)
        self._initial = float(initial)
        self._incr_ratio, self._decr_ratio = float(incr_ratio), float(decr_ratio)
        self._max_skips = self._skips_from(initial)
        self._scale = _scalar(initial, tf.float32, "loss_scale")
        self._good_steps = _scalar(0, tf.int64, "good_steps")
        self._bad_steps = _scalar(0, tf.int64, "bad_steps")
        # What `explains_skip` needs: the scale of the last step, and how many steps
        # up to it were skipped in a row.
        self._used = _scalar(initial, tf.float32, "used_loss_scale")
        self._skips = _scalar(0, tf.int64, "skips_in_a_row")

    def value(self) -> tf.Tensor:
        """The scale of the next step, a float32 scalar; also in replica context."""
        return tf.convert_to_tensor(self._scale)

    def last_value(self) -> float:
        """The scale that the last step was run with, as a Python float."""
        return float(self._used.numpy())

    def update(self, finite: tf.Tensor) -> None:
        """Takes note of a step; call it in cross-replica context, or eagerly.

        Args:
            finite: bool scalar, whether everything was finite on all replicas.
        """
        strategy = tf.distribute.get_strategy()
        # Of what a merge_call hands over, all replicas' values are the same.
        finite = strategy.experimental_local_results(finite)[0]
        finite = tf.convert_to_tensor(finite, tf.bool)
        scale = tf.convert_to_tensor(self._scale)
        self._used.assign(scale)
        self._skips.assign(tf.where(finite, tf.zeros([], tf.int64), self._skips + 1))
        if not self.dynamic:
            return
        zero = tf.zeros([], tf.int64)
        good = tf.where(finite, self._good_steps + 1, zero)
        bad = tf.where(finite, zero, self._bad_steps + 1)
        grows = good >= int(self._every["incr_every_n_steps"])
        shrinks = bad >= int(self._every["decr_every_n_nan_or_inf"])
        larger = scale * self._incr_ratio
        larger = tf.where(tf.math.is_finite(larger), larger, scale)
        smaller = tf.maximum(scale * self._decr_ratio, MINIMUM)
        scale = tf.where(grows, larger, tf.where(shrinks, smaller, scale))
        self._scale.assign(scale)
        self._good_steps.assign(tf.where(grows, zero, good))
        self._bad_steps.assign(tf.where(shrinks, zero, bad))

    def explains_skip(self) -> bool:
        """Whether the last step was not finite because of a scale that is too high.

        Not so when the scale was at its minimum already, or when too many steps were
        skipped in a row for that; then something else is wrong.
        """
        in_range = 0 < int(self._skips.numpy()) <= self._max_skips
        return in_range and self.last_value() > MINIMUM

    def _skips_from(self, scale):
        """How many skips in a row a scale, or a high one, may need to its minimum."""
        if not self.dynamic:
            return MIN_SKIPS_IN_A_ROW
        span = math.log(max(scale, HIGH) / MINIMUM)
        shrinks = math.ceil(span / -math.log(self._decr_ratio))
        every = int(self._every["decr_every_n_nan_or_inf"])
        return max(MIN_SKIPS_IN_A_ROW, shrinks * every)

    def state(self) -> dict[str, float | int]:
        """What a checkpoint keeps: `{"scale", "good_steps", "bad_steps"}`, numbers."""
        return {
            "scale": float(self._scale.numpy()),
            "good_steps": int(self._good_steps.numpy()),
            "bad_steps": int(self._bad_steps.numpy()),
        }

    def restore(self, state: dict) -> None:
        """Goes on from a `state()`; a fixed scale stays what it was made with.

        Args:
            state: what `state` returned.
        """
        self._skips.assign(0)
        if not self.dynamic:
            return
        self._max_skips = self._skips_from(max(state["scale"], self._initial))
        self._scale.assign(state["scale"])
        self._used.assign(state["scale"])
        self._good_steps.assign(state["good_steps"])
        self._bad_steps.assign(state["bad_steps"])


def from_keras(
    optimizer: Any, loss_scale: LossScale | None, policy: str
) -> tuple[keras.optimizers.Optimizer, LossScale | None]:
    """Replaces Keras's loss scaling by a `LossScale` of the same settings.

    `keras.optimizers.LossScaleOptimizer` looks at the gradients of one replica, and at
    none of the head's shards; a step here is applied everywhere or nowhere.

    Call it inside `strategy.scope()`.

    Args:
        optimizer: a Keras optimizer, possibly a `LossScaleOptimizer`.
        loss_scale: the `LossScale` that the caller asks for, or None.
        policy: name of the model's dtype policy. Keras's `compile` scales the loss
            of a model in mixed_float16.

    Returns:
        (the optimizer without a loss scale of Keras's, `LossScale` or None).

    Raises:
        ValueError: there are two loss scales.
    """
    initial, growth_steps = KERAS_INITIAL, KERAS_GROWTH_STEPS
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        if loss_scale is not None:
            raise ValueError(
                "There must be one loss scale. Received: a LossScaleOptimizer and "
                "loss_scale. Pass its inner_optimizer, or leave loss_scale out."
            )
        initial, growth_steps = optimizer.initial_scale, optimizer.dynamic_growth_steps
        optimizer = optimizer.inner_optimizer
        reason = (
            "As LossScaleOptimizer checks the gradients of one replica only, "
            f"{type(optimizer).__name__} is used with"
        )
    elif loss_scale is None and policy == "mixed_float16":
        reason = "The dtype policy is mixed_float16, so compile adds"
    else:
        return optimizer, loss_scale
    text = "%s plsc_tf.LossScale(%g, incr_every_n_steps=%d, decr_every_n_nan_or_inf=1)."
    logging.warning(text, reason, initial, growth_steps)
    return optimizer, LossScale(
        initial, incr_every_n_steps=growth_steps, decr_every_n_nan_or_inf=1
    )


def _scalar(value, dtype, name):
    # Every replica computes the same; a strategy may take any of them.
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return tf.Variable(value, False, dtype=dtype, name=name, aggregation=first)
