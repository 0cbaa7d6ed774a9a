"""A step of stage 2: projected gradient, quasi-Newton direction, line search.

With the batch's loss L, its gradient g, and P with orthonormal rows:

    g_k = P g          d = −B g_k          (B by BFGS, see `Bfgs`)
    the first m with   L(w + ρᵐ Pᵀd) < L(w) + σ ρᵐ g_kᵀd   is accepted, s = ρᵐ d
    r ← γ r + (g − Pᵀ g_k)
    w ← w + ρᵐ Pᵀd − α r                   (without ρᵐ Pᵀd if no m is accepted)

See MindSpore's boost/dim_reduce.py and P-BFGS (Li et al., TPAMI 2022). The gradient, a
trial and the update are separate graphs, so the step runs only the trials it needs.
"""

import dataclasses
import math

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.boost import projection, trajectory
from plsc_tf.boost.space import HostRows, Space
from plsc_tf.flags.boost import Boost
from plsc_tf.parallel import collectives
from plsc_tf.training import replica_step
from plsc_tf.training.updates import Updater

# A smaller curvature along a step may be a rounding error (MindSpore's value).
LEAST_CURVATURE = 1e-20


class Bfgs:
    """Estimates the inverse Hessian of a function of k numbers from its gradients.

    B is initially I. With the last accepted step s, the difference y of the gradients
    after and before it, and q = 1 / yᵀs, each update is
    B ← (I − q y sᵀ)ᵀ B (I − q y sᵀ) + q s sᵀ if yᵀs is positive
    (Nocedal and Wright, Numerical Optimization, 6.17). If no trial of a step is
    accepted, nothing changes.

    Args:
        dimensions: k, the number of components.

    Attributes:
        inverse: B, `[k, k]` float64.
        gradient: `[k]` gradient at the start of the last accepted step.
        step: s, `[k]`, the last accepted step; zero if there is none yet.
    """

    def __init__(self, dimensions):
        self.inverse = np.eye(dimensions)
        self.gradient = np.zeros(dimensions)
        self.step = np.zeros(dimensions)

    def direction(self, gradient):
        """Returns (−B g, B) for a gradient without changing the attributes."""
        gradient = np.asarray(gradient, np.float64)
        inverse, change = self.inverse, gradient - self.gradient
        # Exactly rounded sums are the same on every machine.
        if (curvature := math.fsum(change * self.step)) > LEAST_CURVATURE:
            q = 1.0 / curvature
            left = np.eye(len(gradient)) - q * np.outer(change, self.step)
            inverse = left.T @ inverse @ left + q * np.outer(self.step, self.step)
        return -inverse @ gradient, inverse

    def accept(self, gradient, step, inverse):
        """Records an accepted step.

        Args:
            gradient: `[k]` gradient at the start of the step.
            step: `[k]` the step.
            inverse: B, as returned by `direction`.
        """
        arrays = (np.array(a, np.float64) for a in (gradient, step, inverse))
        self.gradient, self.step, self.inverse = arrays


@dataclasses.dataclass(frozen=True)
class ReductionPlan:
    """The projection and the constants of stage 2.

    Attributes:
        projection: path of the projection.
        layout: the `Layout` of its columns.
        options: the `Boost` options. Their dim_reduce_rho is ρ, the ratio of each
            trial's step size to the previous one; dim_reduce_gamma is γ, the momentum
            of the residual gradient, and dim_reduce_alpha is α, its learning rate;
            dim_reduce_sigma is σ, the Armijo constant; line_search_trials is the
            maximum number of step sizes to try.
    """

    projection: str
    layout: trajectory.Layout
    options: Boost


class ReducedUpdater(Updater):
    """Updates all weights except the reduced ones, which `ReducedStepper` updates.

    Args:
        optimizer: see `Updater`.
        strategy: see `Updater`.
        replicated: list of mirrored `keras.Variable`s, including the reduced ones.
        head: the sharded head, or None.
        plan: the `ReductionPlan`.
        **options: see `Updater`.

    Attributes:
        space: the `Space`.
        bfgs: the `Bfgs`.
        reduced: list of the mirrored variables that are reduced.
        places: indices of the reduced variables in `replicated`.
        left: indices of the other variables in `replicated`.
    """

    def __init__(self, optimizer, strategy, replicated, head=None, *, plan, **options):
        wanted = {id(variable) for variable in plan.layout.variables}
        self.places = [i for i, v in enumerate(replicated) if id(v) in wanted]
        self.left = [i for i, v in enumerate(replicated) if id(v) not in wanted]
        self.reduced = [replicated[i] for i in self.places]
        rows = {} if head is None or not plan.layout.with_head else head.arrays()
        others, head = [replicated[i] for i in self.left], None if rows else head
        super().__init__(optimizer, strategy, others, head, **options)
        kept = plan.options.dim_reduce_alpha > 0
        matrix = projection.read(plan.projection)
        self.space = Space(strategy, matrix, plan.layout, rows, with_residual=kept)
        self.bfgs = Bfgs(self.space.dimensions)

    def slots(self):
        """Returns the optimizer's state for the shards and the reduced step's state."""
        names = ("inverse", "gradient", "step")
        own = {f"dim_reduce/{name}": HostRows(self.bfgs, name) for name in names}
        return {**super().slots(), **own, **self.space.slots()}

    def move(self, flat, finite):
        """Adds a vector to the reduced mirrored weights; call it in replica context.

        Args:
            flat: `[n]` vector to add, equal on all replicas.
            finite: bool scalar; if false, the weights are unchanged.
        """
        changes = self.split(tf.where(finite, flat, tf.zeros_like(flat)))
        for variable, change in zip(self.reduced, changes, strict=True):
            collectives.local_copy(variable.value).assign_add(change)

    def split(self, flat):
        """Splits `[n]` into a list of tensors shaped like the reduced weights."""
        sizes = [variable.value.shape.num_elements() for variable in self.reduced]
        pairs = zip(tf.split(flat, sizes), self.reduced, strict=True)
        return [tf.reshape(tf.cast(part, v.dtype), v.shape) for part, v in pairs]


class ReducedStepper:
    """Runs the steps of stage 2; `step` replaces the ordinary step.

    Args:
        model: the `Classifier`, compiled with a `ReducedUpdater`.
        plan: the `ReductionPlan`.

    Attributes:
        last: dict that describes the last step's line search.
    """

    def __init__(self, model, plan):
        self.model, self.plan, self.last = model, plan, {}
        self._sharded = model.trainer.updater.space.class_rows
        self._find = self._on_replicas(self._gradient)
        self._point = self._on_replicas(self._direction)
        self._try = self._on_replicas(self._trial)
        self._move = self._on_replicas(self._commit)

    def step(self, batch):
        """Runs one step on a per-replica batch, see `Classifier.run_step`.

        Returns:
            dict of floats with the results of `train_step`, and `step_size`: the
            accepted share of the full step, or 0.
        """
        bfgs = self.model.trainer.updater.bfgs
        figures, passes, cut = self._find(batch)
        figures = {name: self._host(value) for name, value in figures.items()}
        healthy, loss = bool(figures["healthy"]), float(figures["loss"])
        gradient = figures["projected"].astype(np.float64)
        direction, inverse = np.zeros_like(gradient), bfgs.inverse
        if healthy:
            direction, inverse = bfgs.direction(gradient)
        wanted = tf.constant(direction, keras.config.floatx())
        direction, path = self._point(passes, cut, figures["projected"], wanted)
        direction = self._host(direction).astype(np.float64)
        slope, accepted, tried = math.nan, 0.0, []
        if healthy and np.isfinite(direction).all():
            # Exactly rounded sums are the same on every machine.
            slope = math.fsum(gradient * direction)
            accepted, tried = self._search(batch, path, loss, slope)
        outcome = self._move(passes, path, _scalar(accepted))
        outcome = {name: float(self._host(value)) for name, value in outcome.items()}
        finite = bool(outcome["finite"])
        if finite and accepted:
            bfgs.accept(gradient, accepted * direction, inverse)
        self.last = {
            "loss": loss,
            "slope": slope,
            "projected_gradient": float(np.linalg.norm(gradient)),
            "trials": tried,
            "accepted": accepted if finite else 0.0,
        }
        outcome["step_size"] = accepted
        return outcome

    def _search(self, batch, path, loss, slope):
        """Backtracks (Armijo); returns (accepted size or 0, losses of the trials)."""
        tried, options = [], self.plan.options
        for m in range(options.line_search_trials):
            size = options.dim_reduce_rho**m
            trial = float(self._host(self._try(batch, path, _scalar(size))))
            tried.append(trial)
            bound = loss + options.dim_reduce_sigma * size * slope
            # NaN and +∞ fail the comparison anyway; the finiteness check rejects −∞.
            if np.isfinite(trial) and trial < bound:
                return size, tried
        return 0.0, tried

    def _gradient(self, batch):
        """Runs one replica's passes and projects its part of the gradient."""
        model, updater = self.model, self.model.trainer.updater
        passes = replica_step.gradients(model, *batch)
        own = [passes.gradients[i] for i in updater.places]
        for place, variable in enumerate(updater.reduced):
            if own[place] is None:
                own[place] = tf.zeros_like(variable.value)
        scale = 1.0 if model.loss_scale is None else model.loss_scale.value()
        # Both the direction and the residual use this unscaled, summed gradient.
        summed = [g / tf.cast(scale, g.dtype) for g in updater.transport.all_sum(own)]
        flat = tf.concat([tf.reshape(g, [-1]) for g in summed], axis=0)
        rows, pending = {}, passes.pending
        if self.plan.layout.with_head and model.head.sharded:
            gradients = model.head.second_pass.whole_gradients(passes.pending)
            rows, pending = dict(zip(model.head.arrays(), gradients, strict=True)), None
        elif pending is not None:
            # The number of tiles whose logits are kept depends on the replica.
            pending = pending | {"tiles": []}
        cut = updater.space.cut(tf.cast(flat, keras.config.floatx()), rows)
        unhealthy = tf.cast(~passes.healthy, keras.config.floatx())
        parts = [passes.loss, unhealthy, updater.space.project(cut)]
        loss, unhealthy, projected = collectives.all_sum(parts)
        healthy = (unhealthy < 0.5) & tf.reduce_all(tf.math.is_finite(projected))
        left = [passes.gradients[i] for i in updater.left]
        passes = passes._replace(gradients=left, pending=pending, healthy=healthy)
        return {"loss": loss, "healthy": healthy, "projected": projected}, passes, cut

    def _direction(self, passes, cut, projected, wanted):
        """Computes the replica's step, which covers all mirrored weights."""
        space = self.model.trainer.updater.space
        # All replicas use replica 0's direction: others may differ in the last bit.
        first = tf.cast(collectives.replica_id() == 0, wanted.dtype)
        direction = collectives.all_sum(first * wanted)
        gamma = self.plan.options.dim_reduce_gamma
        moves, residuals = space.lift(direction, projected, cut, gamma)
        path = {"moves": moves, "flat": space.gather(moves), "residuals": residuals}
        path["random"] = passes.random
        if residuals:
            path["residual"] = space.gather(residuals)
        return direction, path

    def _trial(self, batch, path, size):
        """Computes the batch's loss at w + size · Pᵀd, summed over all replicas.

        A stateless scope substitutes the moved weights and the random states, and
        discards the pass's own updates, such as batch-norm statistics.
        """
        model, updater = self.model, self.model.trainer.updater
        pairs = zip(updater.reduced, updater.split(size * path["flat"]), strict=True)
        moved = [(v, tf.convert_to_tensor(v.value) + change) for v, change in pairs]
        others = model.untrained_variables()
        random = [v for v in others if not v.value.dtype.is_floating]
        moved += list(zip(random, path["random"], strict=True))
        kept = []
        for tile, change in self._sharded(path["moves"]):
            kept.append((tile, tf.identity(tile.read_value())))
            tile.assign_add(size * change)
        with keras.StatelessScope(state_mapping=moved):
            loss = replica_step.gradients(model, *batch, backward=False).loss
        with tf.control_dependencies([loss]):
            for tile, value in kept:
                tile.assign(value)
        return collectives.all_sum(loss)

    def _commit(self, passes, path, size):
        """Applies the whole update, or nothing, on one replica."""
        model, updater = self.model, self.model.trainer.updater
        finite, sums = replica_step.update(model, passes)
        # If no trial was accepted, size is 0 and the path may contain NaN.
        change = tf.math.multiply_no_nan(path["flat"], size)
        moves = [tf.math.multiply_no_nan(move, size) for move in path["moves"]]
        if path["residuals"]:
            alpha = self.plan.options.dim_reduce_alpha
            change -= alpha * path["residual"]
            pairs = zip(moves, path["residuals"], strict=True)
            moves = [move - alpha * residual for move, residual in pairs]
            updater.space.keep_residuals(path["residuals"], finite)
        updater.move(change, finite)
        for tile, move in self._sharded(moves):
            tile.assign_add(tf.where(finite, move, tf.zeros_like(move)))
        return replica_step.finish(model, passes, finite, sums)

    def _on_replicas(self, function):
        def run(*args):
            return self.model.strategy.run(function, args=args)

        return tf.function(run, autograph=False)

    def _host(self, value):
        return np.asarray(self.model.strategy.experimental_local_results(value)[0])


def _scalar(value):
    return tf.constant(value, keras.config.floatx())
