"""A step of stage 2: projected gradient, quasi-Newton direction, line search.

With the batch's loss L, its gradient g, and P with orthonormal rows:

    g_k = P g          d = −B g_k          (B by BFGS, see `bfgs`)
    the first m with   L(w + ρᵐ Pᵀd) < L(w) + σ ρᵐ g_kᵀd   is accepted, s = ρᵐ d
    r ← γ r + (g − Pᵀ g_k)
    w ← w + ρᵐ Pᵀd − α r                   (without the first term if none is)

(MindSpore's boost/dim_reduce.py; P-BFGS of Li et al., TPAMI 2022.) Gradient, trials and
update are graphs of their own, so that no trial is run that is not needed.
"""

import math

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.training import trainer as training


class ReducedStepper:
    """Runs the steps; `step` takes the place of the ordinary one.

    Args:
        model: the `Classifier`, compiled with a `ReducedUpdater`.
        plan: the `ReductionPlan`.

    Attributes:
        last: dict of the last step's line search.
    """

    def __init__(self, model, plan):
        self.model = model
        self.plan = plan
        self.last = {}
        self._sharded = model.trainer.updater.space.class_rows
        self._find = self._on_replicas(self._gradient)
        self._point = self._on_replicas(self._direction)
        self._try = self._on_replicas(self._trial)
        self._move = self._on_replicas(self._commit)

    def step(self, batch):
        """One step on a per-replica batch, see `Classifier.run_step`.

        Returns:
            dict as of `train_step`, and `step_size`, the accepted share of the full
            step or 0.
        """
        bfgs = self.model.trainer.updater.bfgs
        figures, carried = self._find(batch)
        figures = {name: self._host(value) for name, value in figures.items()}
        healthy, loss = bool(figures["healthy"]), float(figures["loss"])
        gradient = figures["projected"].astype(np.float64)
        if healthy:
            direction, inverse = bfgs.direction(gradient)
        else:
            direction, inverse = np.zeros_like(gradient), bfgs.inverse
        wanted = tf.constant(direction, keras.config.floatx())
        direction, path = self._point(carried, figures["projected"], wanted)
        direction = self._host(direction).astype(np.float64)
        slope, accepted, tried = math.nan, 0.0, []
        if healthy and np.isfinite(direction).all():
            # Exactly rounded sums are the same on every machine.
            slope = math.fsum(gradient * direction)
            accepted, tried = self._search(batch, path, loss, slope)
        outcome = dict(self._move(carried, path, _scalar(accepted)))
        finite = bool(self._host(outcome["finite"]))
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
        """Armijo back-tracking; returns (accepted size or 0, losses of the trials)."""
        tried = []
        for m in range(self.plan.trials):
            size = self.plan.rho**m
            trial = float(self._host(self._try(batch, path, _scalar(size))))
            tried.append(trial)
            # No number compares as smaller when it is not finite, but −inf.
            if np.isfinite(trial) and trial < loss + self.plan.sigma * size * slope:
                return size, tried
        return 0.0, tried

    def _gradient(self, batch):
        """The passes of one replica, and its columns' part of the gradient."""
        model, updater = self.model, self.model.trainer.updater
        passes = training.gradients(model, *batch)
        own = [
            tf.zeros_like(variable.value) if gradient is None else gradient
            for variable, gradient in zip(
                updater.reduced,
                (passes.gradients[i] for i in updater.places),
                strict=True,
            )
        ]
        scale = 1.0 if model.loss_scale is None else model.loss_scale.value()
        # Of all that follows: the direction and its residual are of one gradient.
        summed = [g / tf.cast(scale, g.dtype) for g in updater.transport.all_sum(own)]
        flat = tf.concat([tf.reshape(g, [-1]) for g in summed], axis=0)
        rows, pending = {}, passes.pending
        if self.plan.layout.with_head and model.head.sharded:
            gradients = model.head.weight_gradients(passes.pending)
            rows = dict(zip(model.head.arrays(), gradients, strict=True))
            pending = None
        cut = updater.space.cut(tf.cast(flat, keras.config.floatx()), rows)
        unhealthy = tf.cast(~passes.healthy, keras.config.floatx())
        loss, unhealthy, projected = collectives.all_sum(
            [passes.loss, unhealthy, updater.space.project(cut)]
        )
        healthy = (unhealthy < 0.5) & tf.reduce_all(tf.math.is_finite(projected))
        carried = {k: v for k, v in vars(passes).items() if v is not None}
        carried |= {
            "own": cut,
            "gradients": {
                str(i): passes.gradients[i]
                for i in updater.left
                if passes.gradients[i] is not None
            },
            "pending": _evened(pending, model.head),
            "healthy": healthy,
        }
        figures = {"loss": loss, "healthy": healthy, "projected": projected}
        return figures, carried

    def _direction(self, carried, projected, wanted):
        """The step of one replica, and of the replicated weights the whole of it."""
        space = self.model.trainer.updater.space
        # All workers take the first one's: theirs may differ in the last bit.
        first = tf.cast(collectives.replica_id() == 0, wanted.dtype)
        direction = collectives.all_sum(first * wanted)
        moves, residuals = space.lift(
            direction, projected, carried["own"], self.plan.gamma
        )
        path = {
            "moves": moves,
            "flat": space.gather(moves),
            "random": carried["random"],
            "residuals": [],
        }
        if residuals is not None:
            path["residuals"] = residuals
            path["residual"] = space.gather(residuals)
        return direction, path

    def _trial(self, batch, path, size):
        """The batch's loss at w + size · Pᵀd, over all replicas.

        Weights and random states have other values within the scope, and what the
        pass would change, such as batch-norm statistics, stays in it.
        """
        model, updater = self.model, self.model.trainer.updater
        moved = [
            (variable, tf.convert_to_tensor(variable.value) + change)
            for variable, change in zip(
                updater.reduced, updater.split(size * path["flat"]), strict=True
            )
        ]
        random = [
            v for v in model.untrained_variables() if not v.value.dtype.is_floating
        ]
        moved += list(zip(random, path["random"], strict=True))
        kept = []
        for tile, change in self._sharded(path["moves"]):
            kept.append((tile, tf.identity(tile.read_value())))
            tile.assign_add(size * change)
        with keras.StatelessScope(state_mapping=moved):
            loss = training.gradients(model, *batch, backward=False).loss
        with tf.control_dependencies([loss]):
            for tile, value in kept:
                tile.assign(value)
        return collectives.all_sum(loss)

    def _commit(self, carried, path, size):
        """The update of everything or nothing, on one replica."""
        model, updater, plan = self.model, self.model.trainer.updater, self.plan
        values = dict.fromkeys(training.Passes.__dataclass_fields__) | carried
        values["gradients"] = [carried["gradients"].get(str(i)) for i in updater.left]
        values["pending"] = _without_padding(carried["pending"])
        del values["own"]
        passes = training.Passes(**values)
        finite, votes = updater.apply(passes.gradients, passes.pending, passes.healthy)
        # Where no trial was accepted the direction may be anything, and counts as 0.
        change = tf.math.multiply_no_nan(path["flat"], size)
        moves = [tf.math.multiply_no_nan(move, size) for move in path["moves"]]
        if path["residuals"]:
            change -= plan.alpha * path["residual"]
            pairs = zip(moves, path["residuals"], strict=True)
            moves = [move - plan.alpha * residual for move, residual in pairs]
            updater.space.keep_residuals(path["residuals"], finite)
        updater.move(change, finite)
        for tile, move in self._sharded(moves):
            tile.assign_add(tf.where(finite, move, tf.zeros_like(move)))
        return training.finish(model, passes, finite, votes)

    def _on_replicas(self, function):
        def run(*args):
            return self.model.strategy.run(function, args=args)

        return tf.function(run, autograph=False)

    def _host(self, value):
        return np.asarray(self.model.strategy.experimental_local_results(value)[0])


def _evened(pending, head):
    """`pending` with the same names on every replica, whose tiles may be one less."""
    if pending is None:
        return {}
    rows = head.weight
    count = -(-rows.split.size(0) // rows.tile_rows)
    evened = dict(pending)
    for index in range(count):
        for name in (f"offset.{index}", f"products.{index}"):
            evened.setdefault(name, tf.zeros([0]))
    return evened


def _without_padding(pending):
    """The opposite of `_evened`; None where there was nothing."""
    tiles = {name: value for name, value in pending.items() if value.shape != (0,)}
    return tiles or None


def _scalar(value):
    return tf.constant(value, keras.config.floatx())
