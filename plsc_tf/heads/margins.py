"""What a margin head does to the cosine of the true class."""

import dataclasses

import tensorflow as tf

GRADIENTS = ("exact", "straight_through")


@dataclasses.dataclass(frozen=True)
class Margins:
    """Combined margin: the target's cos θ becomes cos(m1 θ + m2) − m3.

    ArcFace (arXiv:1801.07698, equation 4); the other classes keep cos θ. PLSC 0.2:
    `set_loss_type(type, m1, m2, m3)`.

    Attributes:
        m1: factor of the angle (SphereFace).
        m2: angle added, in radians (ArcFace).
        m3: cosine taken off (CosFace).
        normalized: True for cosines of normalised weights and embeddings; False
            for plain softmax, with a bias and without margins.
        gradient: "exact" differentiates through the margin, as PLSC does;
            "straight_through" passes the gradient of the logit to cos θ as if
            there were no margin, as arcface_torch does.
    """

    m1: float = 1.0
    m2: float = 0.0
    m3: float = 0.0
    normalized: bool = True
    gradient: str = "exact"

    def __post_init__(self):
        if self.gradient not in GRADIENTS:
            raise ValueError(
                f"gradient must be one of {GRADIENTS}. Received: {self.gradient!r}"
            )
        if self.m1 <= 0:
            raise ValueError(f"m1 must be positive. Received: m1={self.m1}")
        if not self.normalized and (self.m1, self.m2, self.m3) != (1.0, 0.0, 0.0):
            raise ValueError(
                "Margins need cosines: with normalized=False all of m1=1, m2=0, m3=0 "
                f"must hold. Received: m1={self.m1}, m2={self.m2}, m3={self.m3}"
            )

    def apply(self, cosine):
        """Applies the margin to the targets' cosines.

        Args:
            cosine: `[batch]` cos θ of each example and its own class.

        Returns:
            (`[batch]` cosine with the margin, `[batch]` its derivative by cos θ).
        """
        one = tf.ones_like(cosine)
        if self.m1 == 1.0 and self.m2 == 0.0:
            return cosine - self.m3, one
        # acos has an infinite derivative at ±1 (PLSC does not clip): stay just
        # inside, by what the type can resolve.
        bound = 1.0 - (1e-7 if cosine.dtype == tf.float32 else 1e-14)
        clipped = tf.clip_by_value(cosine, -bound, bound)
        angle = self.m1 * tf.acos(clipped) + self.m2
        value = tf.cos(angle) - self.m3
        if self.gradient == "straight_through":
            return value, one
        # d cos(m1 θ + m2) / d cos θ = m1 sin(m1 θ + m2) / sin θ
        sine = tf.sqrt((1.0 - clipped) * (1.0 + clipped))
        return value, self.m1 * tf.sin(angle) / sine


SOFTMAX = Margins(normalized=False)
ARCFACE = Margins(m2=0.5)
COSFACE = Margins(m3=0.35)
SPHEREFACE = Margins(m1=1.35)
