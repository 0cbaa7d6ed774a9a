"""Margin losses that adapt: to the embedding's norm, or to how far training is."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from plsc_tf.heads.margins import MarginLoss, Target, add_angle, angle_of, require

# The clips of AdaFace's published code, in which they are constants: of the norms,
# of the angle with its margin (and π less it), and beside the deviation.
NORM_RANGE = (1e-3, 100.0)
EPSILON = 1e-3


@dataclasses.dataclass(frozen=True)
class AdaFace(MarginLoss):
    """AdaFace: images of high quality, told by ‖x‖, get another margin.

    Kim, Jain, Liu, arXiv:2204.00964, section 3.3, and head.py of their code. With
    the quality z = clip(h (‖x‖ − μ) / (σ + 0.001), −1, 1), where μ and σ are running
    mean and deviation of the norms, the target's cos θ becomes
    cos(θ − m z) − (m + m z). ‖x‖ is clipped to [0.001, 100] and counts as a
    constant, so no gradient flows through it.

    As in the authors' code θ − m z stays within [0.001, π − 0.001], without slope at
    the ends: below, the target's logit would fall while θ still shrinks. The code
    also clips every cosine to ±0.999 to keep acos finite; here the other classes
    keep theirs, as in the paper, and the target is clipped by what the type resolves.
    The deviation is the unbiased one (torch.std); a batch of one example leaves σ
    as it is. Statistics are of the global batch, not of each device's own part.

    Attributes:
        m: margin, in [0, 1).
        h: how much of the norms' spread the margin follows, in [0, 1]; at 0 the loss
            is CosFace.
        t_alpha: share of the new batch in the running statistics, in (0, 1]; the
            paper's α is 1 − t_alpha.

    Raises:
        ValueError: a number is out of range.
    """

    m: float = 0.4
    h: float = 0.333
    t_alpha: float = 0.01

    def __post_init__(self):
        require(0 <= self.m < 1, "AdaFace's m must be in [0, 1)", m=self.m)
        require(0 <= self.h <= 1, "AdaFace's h must be in [0, 1]", h=self.h)
        share = self.t_alpha
        require(0 < share <= 1, "AdaFace's t_alpha must be in (0, 1]", t_alpha=share)

    def initial_state(self) -> dict[str, float]:
        """Mean 20 and deviation 100 of the norms, as in the authors' code."""
        return {"norm_mean": 20.0, "norm_deviation": 100.0}

    def next_state(
        self, cosine: tf.Tensor, norms: tf.Tensor, weights: tf.Tensor, state: dict
    ) -> dict[str, tf.Tensor]:
        """See `MarginLoss.next_state`: running mean and deviation of the norms."""
        norms = tf.clip_by_value(norms, *NORM_RANGE)
        mean, count = _mean(norms, weights)
        square, _ = _mean(tf.square(norms - mean), weights)
        deviation = tf.sqrt(square * count / tf.maximum(count - 1.0, 1.0))
        return {
            "norm_mean": _moved(state["norm_mean"], mean, self.t_alpha, count > 0),
            "norm_deviation": _moved(
                state["norm_deviation"], deviation, self.t_alpha, count > 1
            ),
        }

    def target(self, cosine: tf.Tensor, norms: tf.Tensor, state: dict) -> Target:
        """See `MarginLoss.target`."""
        mean = tf.cast(state["norm_mean"], cosine.dtype)
        deviation = tf.cast(state["norm_deviation"], cosine.dtype)
        norms = tf.clip_by_value(norms, *NORM_RANGE)
        quality = self.h * (norms - mean) / (deviation + EPSILON)
        quality = tf.clip_by_value(quality, -1.0, 1.0)
        angle, sine = angle_of(cosine)
        angle -= self.m * quality
        inside = tf.clip_by_value(angle, EPSILON, math.pi - EPSILON)
        slope = tf.where(inside == angle, tf.sin(angle) / sine, tf.zeros_like(sine))
        return Target(tf.cos(inside) - (self.m + self.m * quality), slope)


@dataclasses.dataclass(frozen=True)
class CurricularFace(MarginLoss):
    """CurricularFace: other classes that are hard count for more as training goes on.

    Huang et al., arXiv:2004.00288, section 3.2 (the functions T and N), and
    head/metrics.py of their code. The target's cos θ becomes cos(θ + m); another
    class's cos θ_j, where it exceeds cos(θ + m), becomes cos θ_j (t + cos θ_j). t is
    the running mean of the targets' cosines, a constant to the gradient.

    As in the authors' code, where θ + m exceeds π the target becomes
    cos θ − m sin m, which keeps falling as θ grows; what is hard is still told by
    cos(θ + m).

    Attributes:
        m: angle added, in radians, in [0, π).
        momentum: share of the new batch in t, in (0, 1]; the paper's α is
            1 − momentum.

    Raises:
        ValueError: a number is out of range.
    """

    # cos (t + cos), where t is a mean of cosines.
    largest = 2.0
    m: float = 0.5
    momentum: float = 0.01

    def __post_init__(self):
        rule = "CurricularFace's m is an angle in radians, in [0, π)"
        require(0 <= self.m < math.pi, rule, m=self.m)
        rule = "CurricularFace's momentum must be in (0, 1]"
        require(0 < self.momentum <= 1, rule, momentum=self.momentum)

    def initial_state(self) -> dict[str, float]:
        """t = 0, as in the paper."""
        return {"t": 0.0}

    def next_state(
        self, cosine: tf.Tensor, norms: tf.Tensor, weights: tf.Tensor, state: dict
    ) -> dict[str, tf.Tensor]:
        """See `MarginLoss.next_state`: the running mean of the targets' cosines."""
        mean, count = _mean(tf.clip_by_value(cosine, -1.0, 1.0), weights)
        return {"t": _moved(state["t"], mean, self.momentum, count > 0)}

    def target(self, cosine: tf.Tensor, norms: tf.Tensor, state: dict) -> Target:
        """See `MarginLoss.target`."""
        with_margin, slope, _ = add_angle(cosine, self.m)
        within = cosine > -math.cos(self.m)
        return Target(
            tf.where(within, with_margin, cosine - self.m * math.sin(self.m)),
            tf.where(within, slope, tf.ones_like(slope)),
            hard_above=with_margin,
        )

    def others(
        self, cosine: tf.Tensor, target: Target, state: dict
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See `MarginLoss.others`."""
        t = tf.cast(state["t"], cosine.dtype)
        hard = cosine > target.hard_above
        return (
            tf.where(hard, cosine * (t + cosine), cosine),
            tf.where(hard, t + 2.0 * cosine, tf.ones_like(cosine)),
        )


@dataclasses.dataclass(frozen=True)
class MagFace(MarginLoss):
    """MagFace: the margin grows with ‖x‖, and short embeddings cost something.

    Meng et al., arXiv:2103.06627, section 3.2, and models/magface.py of their code.
    With a = ‖x‖ clipped to [l_a, u_a], the target's cos θ becomes cos(θ + m(a)) with
    m(a) linear from l_m at l_a to u_m at u_a, and each loss is increased by
    λ_g g(a), g(a) = 1 / a + a / u_a². Gradients flow through ‖x‖, except where it
    is clipped.

    As in the authors' code (easy_margin) a cos θ ≤ 0 keeps its value: θ + m(a) never
    exceeds π.

    Attributes:
        l_a: lower end of the norms, positive.
        u_a: upper end of the norms, above l_a.
        l_m: margin at l_a, in radians, at least 0.
        u_m: margin at u_a, in radians, from l_m to below π / 2.
        lambda_g: factor of g, at least 0. The paper and the code's recipe take 35,
            the code's own default is 20. For norms to settle inside [l_a, u_a] the
            paper needs at least scale (u_m − l_m) / (u_a − l_a) · u_a² l_a² /
            (u_a² − l_a²), which is 22.6 here with scale 64.

    Raises:
        ValueError: a number is out of range.
    """

    l_a: float = 10.0
    u_a: float = 110.0
    l_m: float = 0.45
    u_m: float = 0.8
    lambda_g: float = 35.0

    def __post_init__(self):
        low, high = self.l_a, self.u_a
        rule = "MagFace needs 0 < l_a < u_a"
        require(0 < low < high < math.inf, rule, l_a=low, u_a=high)
        low, high = self.l_m, self.u_m
        rule = "MagFace's margins are angles in radians, 0 <= l_m <= u_m < π / 2"
        require(0 <= low <= high < math.pi / 2, rule, l_m=low, u_m=high)
        rule = "MagFace's lambda_g must not be negative"
        require(0 <= self.lambda_g < math.inf, rule, lambda_g=self.lambda_g)

    def target(self, cosine: tf.Tensor, norms: tf.Tensor, state: dict) -> Target:
        """See `MarginLoss.target`."""
        length = tf.clip_by_value(norms, self.l_a, self.u_a)
        inside = tf.cast(length == norms, cosine.dtype)
        rise = (self.u_m - self.l_m) / (self.u_a - self.l_a)
        margin = self.l_m + rise * (length - self.l_a)
        value, slope, by_margin = add_angle(cosine, margin)
        easy = cosine > 0
        penalty = self.lambda_g * (1.0 / length + length / self.u_a**2)
        penalty_slope = self.lambda_g * (1.0 / self.u_a**2 - 1.0 / tf.square(length))
        return Target(
            value=tf.where(easy, value, cosine),
            slope=tf.where(easy, slope, tf.ones_like(slope)),
            norm_slope=tf.where(easy, rise * inside * by_margin, tf.zeros_like(value)),
            penalty=penalty,
            penalty_slope=inside * penalty_slope,
        )


def _mean(values, weights):
    """(mean over the examples whose weight is not 0, how many they are)."""
    real = tf.not_equal(weights, 0)
    count = tf.reduce_sum(tf.cast(real, values.dtype))
    # Not a product: what padding holds may be infinite.
    total = tf.reduce_sum(tf.where(real, values, tf.zeros_like(values)))
    return total / tf.maximum(count, 1.0), count


def _moved(old, new, share, known):
    """`old` moved towards `new` by a share, or left where nothing new is known."""
    old = tf.cast(old, new.dtype)
    return tf.where(known, share * new + (1.0 - share) * old, old)


ADAFACE = AdaFace()
CURRICULARFACE = CurricularFace()
MAGFACE = MagFace()
