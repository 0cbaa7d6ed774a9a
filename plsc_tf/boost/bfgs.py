"""The quasi-Newton method in the few dimensions that remain."""

import math

import numpy as np

# A smaller curvature along a step may be a rounding error (MindSpore's value).
LEAST_CURVATURE = 1e-20


class Bfgs:
    """The inverse Hessian of a function of k numbers, from its gradients.

    With the gradients' difference y over the last accepted step s, and q = 1 / yᵀs,
    B ← (I − q y sᵀ)ᵀ B (I − q y sᵀ) + q s sᵀ wherever yᵀs is positive; B is I at first
    (Nocedal and Wright, Numerical Optimization, 6.17). A step that no trial accepts
    leaves everything as it was.

    Args:
        dimensions: k.

    Attributes:
        inverse: B, `[k, k]` float64.
        gradient: `[k]` where the last accepted step began.
        step: s, `[k]`, the last accepted step; zero before there was one.
    """

    def __init__(self, dimensions):
        self.inverse = np.eye(dimensions)
        self.gradient = np.zeros(dimensions)
        self.step = np.zeros(dimensions)

    def direction(self, gradient):
        """(−B g, B) at a point with this gradient; nothing is kept yet."""
        gradient = np.asarray(gradient, np.float64)
        inverse, change = self.inverse, gradient - self.gradient
        # Exactly rounded sums are the same on every machine.
        curvature = math.fsum(change * self.step)
        if curvature > LEAST_CURVATURE:
            q = 1.0 / curvature
            left = np.eye(len(gradient)) - q * np.outer(change, self.step)
            inverse = left.T @ inverse @ left + q * np.outer(self.step, self.step)
        return -inverse @ gradient, inverse

    def accept(self, gradient, step, inverse):
        """Keeps a step that was taken.

        Args:
            gradient: `[k]` where it began.
            step: `[k]`.
            inverse: of `direction`.
        """
        self.gradient = np.array(gradient, np.float64)
        self.step = np.array(step, np.float64)
        self.inverse = np.array(inverse, np.float64)
