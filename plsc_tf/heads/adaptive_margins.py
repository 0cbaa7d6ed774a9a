"""Margin losses that adapt to the embedding's norm or to training progress."""

import dataclasses
import math

import tensorflow as tf

from plsc_tf.heads.margins import MarginLoss, Target, add_angle, angle_of
from plsc_tf.requirements import require

# Constants of AdaFace's published code. Norms are clipped to NORM_RANGE. EPSILON keeps
# the angle with margin away from 0 and π and is added to the deviation in a quotient.
NORM_RANGE = (1e-3, 100.0)
EPSILON = 1e-3


@dataclasses.dataclass(frozen=True)
class AdaFace(MarginLoss):
    """AdaFace: the margin depends on image quality, estimated by ‖x‖.

    Kim, Jain, Liu, arXiv:2204.00964, section 3.3, and head.py of their code. The
    quality is z = clip(h (‖x‖ − μ) / (σ + 0.001), −1, 1), where μ and σ are the running
    mean and standard deviation of the norms. The true class's cos θ becomes
    cos(θ − m z) − (m + m z). ‖x‖ is clipped to [0.001, 100] and treated as a constant,
    so no gradient flows through it.

    As in the authors' code, θ − m z is clipped to [0.001, π − 0.001], and the gradient
    is zero outside that range: below it, the true class's logit would fall as θ
    shrinks. Their code also clips every cosine to ±0.999 to keep acos finite. This
    class follows the paper and leaves the other classes' cosines unchanged; the true
    class's cosine is clipped just inside ±1 (see `margins.angle_of`). The standard
    deviation is unbiased, as in torch.std; a batch of one example leaves σ unchanged.
    Statistics cover the global batch rather than each device's part.

    Attributes:
        m: margin, in [0, 1).
        h: factor of the normalized norm in z, in [0, 1]; at 0, the loss is CosFace.
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
        """Returns mean 20 and deviation 100 of the norms, as in the authors' code."""
        return {"norm_mean": 20.0, "norm_deviation": 100.0}

    def next_state(
        self, cosine: tf.Tensor, norms: tf.Tensor, weights: tf.Tensor, state: dict
    ) -> dict[str, tf.Tensor]:
        """Updates the norms' running statistics, see `MarginLoss.next_state`."""
        norms = tf.clip_by_value(norms, *NORM_RANGE)
        mean, count = _mean(norms, weights)
        square, _ = _mean(tf.square(norms - mean), weights)
        deviation = tf.sqrt(square * count / tf.maximum(count - 1.0, 1.0))
        mean = _moved(state["norm_mean"], mean, self.t_alpha, count > 0)
        deviation = _moved(state["norm_deviation"], deviation, self.t_alpha, count > 1)
        return {"norm_mean": mean, "norm_deviation": deviation}

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
    """CurricularFace: hard negative classes gain weight as training progresses.

    Huang et al., arXiv:2004.00288, section 3.2 (the functions T and N), and
    head/metrics.py of their code. The true class's cos θ becomes cos(θ + m). Another
    class is hard if its cos θ_j exceeds cos(θ + m); its cosine becomes
    cos θ_j (t + cos θ_j). t is the running mean of the true classes' cosines and is
    treated as a constant, so no gradient flows through it.

    As in the authors' code, if θ + m exceeds π, the true class's cosine becomes
    cos θ − m sin m, which keeps falling as θ grows. cos(θ + m) still decides which
    classes are hard.

    Attributes:
        m: angle added to θ, in radians, in [0, π).
        momentum: share of the new batch in t, in (0, 1]; the paper's α is
            1 − momentum.

    Raises:
        ValueError: a number is out of range.
    """

    # The bound of cos θ (t + cos θ), since t and cos θ are at most 1.
    largest = 2.0
    m: float = 0.5
    momentum: float = 0.01

    def __post_init__(self):
        rule = "CurricularFace's m must be in [0, π), in radians"
        require(0 <= self.m < math.pi, rule, m=self.m)
        rule = "CurricularFace's momentum must be in (0, 1]"
        require(0 < self.momentum <= 1, rule, momentum=self.momentum)

    def initial_state(self) -> dict[str, float]:
        """Returns t = 0, as in the paper."""
        return {"t": 0.0}

    def next_state(
        self, cosine: tf.Tensor, norms: tf.Tensor, weights: tf.Tensor, state: dict
    ) -> dict[str, tf.Tensor]:
        """Updates the running mean t, see `MarginLoss.next_state`."""
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
        value = tf.where(hard, cosine * (t + cosine), cosine)
        return value, tf.where(hard, t + 2.0 * cosine, tf.ones_like(cosine))


@dataclasses.dataclass(frozen=True)
class MagFace(MarginLoss):
    """MagFace: the margin grows with ‖x‖, and short embeddings are penalized.

    Meng et al., arXiv:2103.06627, section 3.2, and models/magface.py of their code.
    With a = ‖x‖ clipped to [l_a, u_a], the true class's cos θ becomes cos(θ + m(a)),
    where m(a) rises linearly from l_m at l_a to u_m at u_a. Each loss is increased by
    λ_g g(a), where g(a) = 1 / a + a / u_a². Gradients flow through ‖x‖ unless it is
    clipped.

    As in the authors' code (easy_margin), cos θ ≤ 0 is left unchanged, so θ + m(a)
    never exceeds π.

    Attributes:
        l_a: lower end of the norms, positive.
        u_a: upper end of the norms, above l_a.
        l_m: margin at l_a, in radians, at least 0.
        u_m: margin at u_a, in radians, from l_m to below π / 2.
        lambda_g: factor of g, at least 0. The paper and the authors' recipe use 35;
            the default in their code is 20. For norms to converge inside [l_a, u_a],
            the paper requires at least scale (u_m − l_m) / (u_a − l_a) · u_a² l_a² /
            (u_a² − l_a²), which is 22.6 for the defaults at scale 64.

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
        rule = "MagFace needs 0 <= l_m <= u_m < π / 2, in radians"
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
    """Returns (mean over examples with a nonzero weight, number of them)."""
    real = tf.not_equal(weights, 0)
    count = tf.reduce_sum(tf.cast(real, values.dtype))
    # Padding may hold infinity, and infinity times 0 would be NaN.
    total = tf.reduce_sum(tf.where(real, values, tf.zeros_like(values)))
    return total / tf.maximum(count, 1.0), count


def _moved(old, new, share, known):
    """Moves `old` toward `new` by `share`; returns `old` if `known` is False."""
    old = tf.cast(old, new.dtype)
    return tf.where(known, share * new + (1.0 - share) * old, old)


ADAFACE = AdaFace()
CURRICULARFACE = CurricularFace()
MAGFACE = MagFace()
