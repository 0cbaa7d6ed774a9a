"""The update of stage 2: reduced weights apart from those of the optimizer."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
import tensorflow as tf

from plsc_tf.boost.layout import Layout
from plsc_tf.boost.projection import Projection
from plsc_tf.boost.space import HostRows, Space
from plsc_tf.training.updates import Updater

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


@dataclasses.dataclass(frozen=True)
class ReductionPlan:
    """The space and the constants of a stage 2.

    Attributes:
        projection: the `Projection`.
        layout: the `Layout` of its columns.
        rho: each trial's step, as a share of the previous one.
        gamma: momentum of the residual gradient.
        alpha: learning rate of the residual gradient.
        sigma: Armijo's constant.
        trials: number of steps that are tried.
    """

    projection: Projection
    layout: Layout
    rho: float
    gamma: float
    alpha: float
    sigma: float
    trials: int


class ReducedUpdater(Updater):
    """Updates all weights but the reduced ones, which a `ReducedStepper` moves.

    Args:
        optimizer: as of `Updater`.
        strategy: as of `Updater`.
        replicated: list of mirrored `keras.Variable`s, reduced or not.
        head: the sharded head, or None.
        plan: the `ReductionPlan`.
        **options: of `Updater`.

    Attributes:
        space: the `Space`.
        bfgs: the `Bfgs`.
        reduced: list of the mirrored variables that are reduced.
        places: their numbers in `replicated`.
        left: numbers of the others.
    """

    def __init__(self, optimizer, strategy, replicated, head=None, *, plan, **options):
        wanted = {id(variable) for variable in plan.layout.variables}
        self.places = [i for i, v in enumerate(replicated) if id(v) in wanted]
        self.left = [i for i, v in enumerate(replicated) if id(v) not in wanted]
        self.reduced = [replicated[i] for i in self.places]
        rows = {} if head is None or not plan.layout.with_head else head.arrays()
        super().__init__(
            optimizer,
            strategy,
            [replicated[i] for i in self.left],
            None if rows else head,
            **options,
        )
        self.space = Space(
            strategy,
            plan.projection,
            plan.layout,
            rows,
            with_residual=plan.alpha > 0,
        )
        self.bfgs = Bfgs(self.space.dimensions)

    def slots(self):
        """The optimizer's state for the shards, and the reduced step's."""
        names = ("inverse", "gradient", "step")
        own = {f"dim_reduce/{name}": HostRows(self.bfgs, name) for name in names}
        return {**super().slots(), **own, **self.space.slots()}

    def move(self, flat, finite):
        """Adds `[n]` to the reduced weights on all replicas; in replica context.

        Args:
            flat: what to add, alike on every replica.
            finite: bool scalar, whether to.
        """
        changes = self.split(tf.where(finite, flat, tf.zeros_like(flat)))
        variables = [variable.value for variable in self.reduced]
        tf.distribute.get_replica_context().merge_call(
            functools.partial(_add_everywhere, variables), args=(changes,)
        )

    def split(self, flat):
        """`[n]` as the reduced weights' shapes, a list."""
        sizes = [variable.value.shape.num_elements() for variable in self.reduced]
        return [
            tf.reshape(tf.cast(part, variable.dtype), variable.shape)
            for part, variable in zip(tf.split(flat, sizes), self.reduced, strict=True)
        ]

    def _clip(self, replicated, pending):
        if not replicated and self.rules is None:
            return [], {}  # all is reduced
        return super()._clip(replicated, pending)


def _add_everywhere(variables, strategy, changes):
    for variable, change in zip(variables, changes, strict=True):
        strategy.extended.update(
            variable, lambda own, value: own.assign_add(value), args=(change,)
        )
