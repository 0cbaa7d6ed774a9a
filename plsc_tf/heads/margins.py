"""What a margin loss makes of the cosines between embeddings and classes.

No gradient tape runs in a head: every loss returns derivatives beside its values.
The functions hold no variables, so they work inside compiled functions, in float32
and float64. The losses whose margin adapts are in `adaptive_margins`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import tensorflow as tf

GRADIENTS = ("exact", "straight_through")
# SphereFace's published range ends at 4 (arXiv:1704.08063).
LARGEST_FACTOR = 4.0


class Target(NamedTuple):
    """What a loss makes of the true class's cosine; every tensor is `[batch]`.

    It is a tuple, so that a `tf.function` may take and return it.

    Attributes:
        value: cosine with the margin.
        slope: derivative of the value by the cosine.
        norm_slope: derivative of the value by ‖x‖; None where the norm plays no
            part or counts as a constant.
        penalty: what is added to each example's loss; None for nothing.
        penalty_slope: derivative of the penalty by ‖x‖; None as the penalty is.
        hard_above: other classes with a cosine above this are hard; None for a
            loss that does not tell them apart.
    """

    value: tf.Tensor
    slope: tf.Tensor
    norm_slope: tf.Tensor | None = None
    penalty: tf.Tensor | None = None
    penalty_slope: tf.Tensor | None = None
    hard_above: tf.Tensor | None = None


class MarginLoss:
    """Base of the margin losses: no state, the other classes keep their cosines.

    Attributes:
        normalized: whether the head computes cosines; False only for plain softmax,
            where "cosine" below means logit.
        largest: bound of what `others` may return.
    """

    normalized = True
    largest = 1.0

    def initial_state(self) -> dict[str, float]:
        """What the loss carries from step to step: `{name: float}`."""
        return {}

    def next_state(
        self, cosine: tf.Tensor, norms: tf.Tensor, weights: tf.Tensor, state: dict
    ) -> dict[str, tf.Tensor]:
        """The state with this step's batch in it; the same step already uses it.

        Args:
            cosine: `[global_batch]` cosine of each example and its own class.
            norms: `[global_batch]` ‖x‖ of the embeddings as the backbone gives them.
            weights: `[global_batch]` of the examples; one with weight 0 is padding
                and takes no part, all others count alike.
            state: `{name: scalar}` of the step before.

        Returns:
            `{name: scalar}` in the dtype of the cosines; the state as it was where
            the batch has too few examples.
        """
        return state

    def target(self, cosine: tf.Tensor, norms: tf.Tensor, state: dict) -> Target:
        """Applies the margin to the true classes' cosines.

        Args:
            cosine: `[batch]` cosine of each example and its own class.
            norms: `[batch]` ‖x‖.
            state: of `next_state`.

        Returns:
            a `Target`.
        """
        raise NotImplementedError

    def others(
        self, cosine: tf.Tensor, target: Target, state: dict
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """What becomes of the classes that are not the true one.

        Args:
            cosine: `[classes, batch]`; the caller masks the true class's entries.
            target: the `Target` of the same examples.
            state: of `next_state`.

        Returns:
            (`[classes, batch]` value, its derivative by the cosine); the derivative
            is None when the value is the cosine itself.
        """
        return cosine, None


@dataclasses.dataclass(frozen=True)
class Margins(MarginLoss):
    """Combined margin: the target's cos θ becomes cos(m1 θ + m2) − m3.

    ArcFace (arXiv:1801.07698, equation 4); the other classes keep cos θ. PLSC 0.2:
    `set_loss_type(type, m1, m2, m3)`. Where m1 θ + m2 exceeds π the cosine rises
    again: neither PLSC nor arcface_torch guards against that, and nor do we, so
    that the same margins mean the same loss.

    Attributes:
        m1: factor of the angle (SphereFace), in (0, 4].
        m2: angle added, in radians (ArcFace), in [0, π).
        m3: cosine taken off (CosFace), in [0, 2).
        normalized: True for cosines of normalised weights and embeddings; False
            for plain softmax, with a bias and without margins.
        gradient: "exact" differentiates through the margin, as PLSC does;
            "straight_through" passes the gradient of the logit to cos θ as if
            there were no margin, as arcface_torch does.

    Raises:
        ValueError: a margin is out of range, or the gradient's name is unknown.
    """

    m1: float = 1.0
    m2: float = 0.0
    m3: float = 0.0
    normalized: bool = True
    gradient: str = "exact"

    def __post_init__(self):
        m1, m2, m3 = self.m1, self.m2, self.m3
        rule = f"gradient must be one of {GRADIENTS}"
        require(self.gradient in GRADIENTS, rule, gradient=self.gradient)
        require(0 < m1 <= LARGEST_FACTOR, "m1 must be in (0, 4]", m1=m1)
        require(0 <= m2 < math.pi, "m2 is an angle in radians, in [0, π)", m2=m2)
        require(0 <= m3 < 2, "m3 must be in [0, 2)", m3=m3)
        plain = (m1, m2, m3) == (1.0, 0.0, 0.0)
        rule = "Margins need cosines: normalized=False needs m1=1, m2=0, m3=0"
        require(self.normalized or plain, rule, m1=m1, m2=m2, m3=m3)

    def target(self, cosine: tf.Tensor, norms: tf.Tensor, state: dict) -> Target:
        """See `MarginLoss.target`; neither norms nor state play a part."""
        one = tf.ones_like(cosine)
        if self.m1 == 1.0 and self.m2 == 0.0:
            return Target(cosine - self.m3, one)
        value, slope, _ = add_angle(cosine, self.m2, factor=self.m1)
        if self.gradient == "straight_through":
            slope = one
        return Target(value - self.m3, slope)


@dataclasses.dataclass(frozen=True)
class InterclassFilter(MarginLoss):
    """Another loss, in which suspiciously similar other classes do not count.

    Other classes whose cosine exceeds the threshold get the value 0 and no
    gradient: with noisy labels they are often the same person (arcface_torch:
    interclass_filtering_threshold, in its CombinedMarginLoss).

    Example:
        margins = InterclassFilter(plsc_tf.ARCFACE, threshold=0.4)

    Attributes:
        loss: the `MarginLoss` that it is put around.
        threshold: cosine in [0, 1); 0 switches the filter off.

    Raises:
        ValueError: the threshold is out of range, or the loss has no cosines.
    """

    loss: MarginLoss
    threshold: float

    def __post_init__(self):
        loss, threshold = self.loss, self.threshold
        rule = "InterclassFilter goes around a margin loss, such as plsc_tf.ARCFACE"
        require(isinstance(loss, MarginLoss), rule, loss=loss)
        rule = "The inter-class filter's threshold is a cosine in [0, 1), 0 for none"
        require(0 <= threshold < 1, rule, threshold=threshold)
        rule = "The inter-class filter needs cosines, which plain softmax does not have"
        require(not threshold or loss.normalized, rule, loss=loss)
        # All but the other classes is as of the loss inside.
        for name in ("normalized", "largest", "initial_state", "next_state", "target"):
            object.__setattr__(self, name, getattr(self.loss, name))

    def others(
        self, cosine: tf.Tensor, target: Target, state: dict
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """See `MarginLoss.others`."""
        value, slope = self.loss.others(cosine, target, state)
        if not self.threshold:
            return value, slope
        above = cosine > self.threshold
        nothing = tf.zeros_like(cosine)
        if slope is None:
            slope = tf.ones_like(cosine)
        return tf.where(above, nothing, value), tf.where(above, nothing, slope)


def add_angle(
    cosine: tf.Tensor, margin: float, factor: float = 1.0
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """cos(factor · θ + margin) of cos θ, and its derivatives.

    Args:
        cosine: `[batch]`.
        margin: angle in radians, a number or `[batch]`.
        factor: of the angle θ.

    Returns:
        (`[batch]` value, its derivative by cos θ, its derivative by the margin).
    """
    angle, sine = angle_of(cosine)
    angle = factor * angle + margin
    by_margin = -tf.sin(angle)
    # cos θ falls by sin θ while θ grows by 1.
    return tf.cos(angle), -factor * by_margin / sine, by_margin


def angle_of(cosine: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """(θ, sin θ) of cos θ, kept off 0 and π.

    At cos θ = ±1 the derivative of acos is infinite, while the derivative of cos θ
    by the embedding vanishes: their product is finite, but computed it is NaN (PLSC
    does not clip). So the cosine stays inside by what the type can resolve; that
    also takes in cosines that rounding put beyond ±1.
    """
    bound = 1.0 - (1e-14 if cosine.dtype == tf.float64 else 1e-7)
    clipped = tf.clip_by_value(cosine, -bound, bound)
    sine = tf.sqrt((1.0 - clipped) * (1.0 + clipped))
    # XLA's acos forms 1 − cos²θ, which loses digits at both ends; this does not.
    return tf.atan2(sine, clipped), sine


def require(condition: bool, rule: str, **received) -> None:
    """Raises a ValueError with the rule and what was received, unless it holds."""
    if not condition:
        values = ", ".join(f"{name}={value}" for name, value in received.items())
        raise ValueError(f"{rule}. Received: {values}")


SOFTMAX = Margins(normalized=False)
ARCFACE = Margins(m2=0.5)
COSFACE = Margins(m3=0.35)
SPHEREFACE = Margins(m1=1.35)
