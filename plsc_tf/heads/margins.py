"""Margin losses, which modify the cosines between embeddings and class centers.

A head doesn't use a gradient tape, so every loss returns derivatives with its values.
The losses have no variables, so they work inside compiled functions. They accept
float32 and float64. Losses with adaptive margins are in `adaptive_margins`.
"""

import dataclasses
import math
from typing import NamedTuple

import tensorflow as tf

from plsc_tf.requirements import require, require_one_of

GRADIENTS = ("exact", "straight_through")
# SphereFace's published range ends at 4 (arXiv:1704.08063).
LARGEST_FACTOR = 4.0


class Target(NamedTuple):
    """The true class's cosine after the margin; every tensor is `[batch]`.

    This is a tuple so that a `tf.function` can accept and return it.

    Attributes:
        value: cosine with the margin.
        slope: derivative of the value with respect to the cosine.
        norm_slope: derivative of the value with respect to ‖x‖, the norm of the
            embedding, or None if the loss doesn't use the norm or treats it as a
            constant.
        penalty: term added to each example's loss, or None.
        penalty_slope: derivative of the penalty with respect to ‖x‖, or None if there
            is no penalty.
        hard_above: cosine above which another class is hard, or None if the loss
            doesn't single out hard classes.
    """

    value: tf.Tensor
    slope: tf.Tensor
    norm_slope: tf.Tensor | None = None
    penalty: tf.Tensor | None = None
    penalty_slope: tf.Tensor | None = None
    hard_above: tf.Tensor | None = None


class MarginLoss:
    """Base class of the margin losses.

    By default, a loss has no state and leaves the other classes' cosines unchanged.

    Attributes:
        normalized: whether the head computes cosines; False only for plain softmax, for
            which "cosine" below means logit.
        largest: upper bound of the values returned by `others`.
    """

    normalized = True
    largest = 1.0

    def initial_state(self) -> dict[str, float]:
        """Returns the state before the first step, `{name: float}`."""
        return {}

    def next_state(
        self, cosine: tf.Tensor, norms: tf.Tensor, weights: tf.Tensor, state: dict
    ) -> dict[str, tf.Tensor]:
        """Updates the state with this step's batch; the same step uses the result.

        Args:
            cosine: `[global_batch]` cosine of each example and its own class.
            norms: `[global_batch]` ‖x‖ of the backbone's embeddings.
            weights: `[global_batch]` weights of the examples; an example with weight 0
                is padding and is ignored, all others count equally.
            state: `{name: scalar}`, the state after the previous step.

        Returns:
            `{name: scalar}` in the dtype of the cosines; entries for which the batch
            has too few examples are unchanged.
        """
        return state

    def target(self, cosine: tf.Tensor, norms: tf.Tensor, state: dict) -> Target:
        """Applies the margin to the true classes' cosines.

        Args:
            cosine: `[batch]` cosine of each example and its own class.
            norms: `[batch]` ‖x‖.
            state: the state returned by `next_state`.

        Returns:
            a `Target`.
        """
        raise NotImplementedError

    def others(
        self, cosine: tf.Tensor, target: Target, state: dict
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Transforms the cosines of all classes other than the true class.

        Args:
            cosine: `[classes, batch]`; the caller masks the true class's entries.
            target: the `Target` of the same examples.
            state: the state returned by `next_state`.

        Returns:
            (`[classes, batch]` value, its derivative with respect to the cosine); the
            derivative is None if the value is the cosine itself.
        """
        return cosine, None


@dataclasses.dataclass(frozen=True)
class Margins(MarginLoss):
    """Combined margin: the true class's cos θ becomes cos(m1 θ + m2) − m3.

    See ArcFace (arXiv:1801.07698, equation 4) and `set_loss_type(type, m1, m2, m3)` in
    PLSC 0.2. The other classes' cosines are unchanged. If m1 θ + m2 exceeds π, the
    cosine rises again. PLSC and arcface_torch don't guard against this, and neither
    does this class, so the same margins give the same loss.

    Attributes:
        m1: factor of θ (SphereFace), in (0, 4].
        m2: angle added to θ, in radians (ArcFace), in [0, π).
        m3: number subtracted from the cosine (CosFace), in [0, 2).
        normalized: True for cosines of normalized weights and embeddings; False for
            plain softmax, with biases and without margins.
        gradient: "exact" differentiates through the margin, as PLSC does;
            "straight_through" passes the gradient of the logit to cos θ as if there
            were no margin, as arcface_torch does.

    Raises:
        ValueError: a margin is out of range, or `gradient` is unknown.
    """

    m1: float = 1.0
    m2: float = 0.0
    m3: float = 0.0
    normalized: bool = True
    gradient: str = "exact"

    def __post_init__(self):
        m1, m2, m3 = self.m1, self.m2, self.m3
        require_one_of(GRADIENTS, gradient=self.gradient)
        require(0 < m1 <= LARGEST_FACTOR, "m1 must be in (0, 4]", m1=m1)
        require(0 <= m2 < math.pi, "m2 must be in [0, π), in radians", m2=m2)
        require(0 <= m3 < 2, "m3 must be in [0, 2)", m3=m3)
        plain = (m1, m2, m3) == (1.0, 0.0, 0.0)
        rule = "Margins need cosines: normalized=False needs m1=1, m2=0, m3=0"
        require(self.normalized or plain, rule, m1=m1, m2=m2, m3=m3)

    def target(self, cosine: tf.Tensor, norms: tf.Tensor, state: dict) -> Target:
        """See `MarginLoss.target`; `norms` and `state` are ignored."""
        one = tf.ones_like(cosine)
        if self.m1 == 1.0 and self.m2 == 0.0:
            return Target(cosine - self.m3, one)
        value, slope, _ = add_angle(cosine, self.m2, factor=self.m1)
        if self.gradient == "straight_through":
            slope = one
        return Target(value - self.m3, slope)


@dataclasses.dataclass(frozen=True)
class InterclassFilter(MarginLoss):
    """Wraps a loss and ignores other classes that are suspiciously similar.

    If the cosine of an example and another class is above the threshold, it is replaced
    by 0 and has no gradient. With noisy labels, such a class is often the same person.
    In arcface_torch, this is interclass_filtering_threshold of CombinedMarginLoss.

    Example:
        ```python
        margins = InterclassFilter(plsc_tf.ARCFACE, threshold=0.4)
        ```

    Attributes:
        loss: the `MarginLoss` to wrap.
        threshold: cosine in [0, 1); 0 disables the filter.

    Raises:
        ValueError: the threshold is out of range, or the loss is plain softmax.
    """

    loss: MarginLoss
    threshold: float

    def __post_init__(self):
        loss, threshold = self.loss, self.threshold
        rule = "InterclassFilter must wrap a margin loss, such as plsc_tf.ARCFACE"
        require(isinstance(loss, MarginLoss), rule, loss=loss)
        rule = "The inter-class filter's threshold must be in [0, 1); 0 disables it"
        require(0 <= threshold < 1, rule, threshold=threshold)
        rule = "The inter-class filter needs cosines, which plain softmax does not have"
        require(not threshold or loss.normalized, rule, loss=loss)
        # Everything except `others` is delegated to the wrapped loss.
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
    """Computes cos(factor · θ + margin) and its derivatives from cos θ.

    Args:
        cosine: `[batch]` cos θ.
        margin: angle in radians, a number or `[batch]`.
        factor: factor of θ.

    Returns:
        (`[batch]` value, its derivative with respect to cos θ, its derivative with
        respect to the margin).
    """
    angle, sine = angle_of(cosine)
    angle = factor * angle + margin
    by_margin = -tf.sin(angle)
    # d cos θ / dθ = −sin θ.
    return tf.cos(angle), -factor * by_margin / sine, by_margin


def angle_of(cosine: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (θ, sin θ) for cos θ, with θ kept away from 0 and π.

    At cos θ = ±1, the derivative of acos is infinite and the derivative of cos θ with
    respect to the embedding is 0. Their product is finite in theory but NaN in floating
    point (PLSC doesn't clip). The cosine is therefore clipped just inside ±1, by 1e-7
    in float32 and 1e-14 in float64; this also covers cosines rounded beyond ±1.
    """
    bound = 1.0 - (1e-14 if cosine.dtype == tf.float64 else 1e-7)
    clipped = tf.clip_by_value(cosine, -bound, bound)
    sine = tf.sqrt((1.0 - clipped) * (1.0 + clipped))
    # XLA's acos computes 1 − cos²θ, which loses digits near ±1; atan2 doesn't.
    return tf.atan2(sine, clipped), sine


SOFTMAX = Margins(normalized=False)
ARCFACE = Margins(m2=0.5)
COSFACE = Margins(m3=0.35)
SPHEREFACE = Margins(m1=1.35)
