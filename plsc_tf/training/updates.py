"""Applies one Keras optimizer to both mirrored weights and class shards."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.parallel import collectives
from plsc_tf.training.average import SLOT, Averages
from plsc_tf.training.optimizers import Lars
from plsc_tf.training.rules import RowRules, decays
from plsc_tf.training.weight_rules import COMMON

if TYPE_CHECKING:
    from plsc_tf.heads.base import Head
    from plsc_tf.parallel.collectives import Transport
    from plsc_tf.parallel.rows import ShardedRows
    from plsc_tf.training.average import Averaging
    from plsc_tf.training.ending import Votes
    from plsc_tf.training.loss_scale import LossScale
    from plsc_tf.training.weight_rules import WeightRule

# The rules of these optimizers use statistics of a whole weight. Applied to each shard
# separately, they would compute something else.
NOT_ROW_WISE = ("Adafactor", "Lamb", "Muon")


class Updater:
    """Clips gradients, decays weights, and updates all weights or none.

    Keras clips gradients before the strategy sums them over the replicas. The strategy
    would also sum the gradients of different shards, which belong to different classes.
    So the updater calls the optimizer's rule (`update_step`) directly: inside
    `strategy.extended.update` for mirrored weights, in `RowRules` for shards.

    Args:
        optimizer: the Keras optimizer.
        strategy: the `tf.distribute.Strategy`.
        replicated: list of mirrored `keras.Variable`s.
        head: the sharded head, or None; it has the methods `arrays()`,
            `pieces(pending)`, `tile_gradients(arrays, part)`, `square_norms(pending)`
            and `square_weights(pending)`.
        l2: factor of an L2 penalty on every weight, added to the clipped gradients,
            for optimizers that have none.
        slot_dtype: dtype of the shards' stored slots, see `RowRules`.
        loss_scale: `plsc_tf.training.loss_scale.LossScale` by which the gradients of
            the replicated weights were multiplied, or None.
        transport: `plsc_tf.parallel.collectives.Transport` for the replicated weights'
            gradients.
        votes: this worker's `plsc_tf.training.ending.Votes` in a cluster, or None.
        averaging: `plsc_tf.training.average.Averaging` of the weights, or None.
        head_rule: the head's `plsc_tf.training.weight_rules.WeightRule`, or None.
        layer_rules: `{id of a keras.Variable: WeightRule}` for mirrored weights.

    Attributes:
        averages: the `plsc_tf.training.average.Averages`, or None.

    Raises:
        ValueError: the optimizer cannot update shards, or was not created inside
            `strategy.scope()`.
    """

    def __init__(  # noqa: PLR0913 - most have defaults
        self,
        optimizer: keras.optimizers.Optimizer,
        strategy: tf.distribute.Strategy,
        replicated: list[keras.Variable],
        head: Head | None = None,
        *,
        l2: float = 0.0,
        slot_dtype: str | None = None,
        loss_scale: LossScale | None = None,
        transport: Transport | None = None,
        votes: Votes | None = None,
        averaging: Averaging | None = None,
        head_rule: WeightRule | None = None,
        layer_rules: Mapping[int, WeightRule] | None = None,
    ) -> None:
        _check(optimizer, head)
        self.head_rule = head_rule or COMMON
        self.layer_rules = layer_rules or {}
        self.l2 = l2
        self.optimizer = optimizer
        self.replicated = replicated
        self.head = head
        self.loss_scale = loss_scale
        self.transport = transport or collectives.Transport()
        self.votes: Any = votes
        with strategy.scope():
            if not optimizer.built and not private_apis.belongs_to(optimizer, strategy):
                raise ValueError(
                    "Create the optimizer inside strategy.scope(), like the model. "
                    f"Received: a {type(optimizer).__name__} created outside it."
                )
            optimizer.build(replicated)
        self.rules = None
        if head is not None:
            self.rules = RowRules(
                optimizer,
                head.arrays(),
                head.tile_gradients,
                l2=l2,
                slot_dtype=slot_dtype,
                averaging=averaging,
                weight_rule=self.head_rule,
            )
        self.averages = None
        if averaging is not None:
            rows = {} if head is None else head.arrays()
            slots = self.slots()
            self.averages = Averages(
                averaging,
                strategy,
                replicated,
                rows,
                {name: slots[f"{name}/{SLOT}"] for name in rows},
            )

    def slots(self) -> dict[str, ShardedRows]:
        """Returns the shards' optimizer state: `{"weight/velocity": ShardedRows}`."""
        return {} if self.rules is None else self.rules.slots()

    def apply(
        self,
        replicated_gradients: list[tf.Tensor | None],
        pending: Any,
        healthy: tf.Tensor,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Updates all weights on every replica unless there is NaN or infinity.

        Call it in replica context.

        Args:
            replicated_gradients: this replica's share of each mirrored weight's
                gradient, times the loss scale; None for a weight that the loss does not
                depend on.
            pending: the `pending` tensors of the head's step, from which the shards'
                gradients are computed after the checks; None without a sharded head.
            healthy: bool scalar, True if this replica's loss and embedding gradients
                are finite.

        Returns:
            (bool scalar, True if the update was applied; outcome of the workers' votes,
            see `Votes.count`).
        """
        present = [i for i, g in enumerate(replicated_gradients) if g is not None]
        summed = []
        if present:
            summed = self.transport.all_sum([replicated_gradients[i] for i in present])
            healthy &= _all_finite(summed)
        if self.loss_scale is not None:
            scale = self.loss_scale.value()
            summed = [g / tf.cast(scale, g.dtype) for g in summed]
        unhealthy, votes = self._count(tf.cast(~healthy, tf.float32))
        finite = unhealthy < 0.5
        aborted = votes.get("aborted")
        if aborted is not None:
            finite &= ~aborted
        summed, factors = self._clip(summed, pending)
        if self.rules is not None and isinstance(self.optimizer, Lars):
            factors["weight/rate"] = self._trust(pending, factors["weight"])
        variables = [self.replicated[i] for i in present]
        # Pass a function instead of `pending`: arguments of `merge_call` must have the
        # same structure on all replicas, but one may have a tile more than another.
        pieces = None
        if self.head is not None:
            pieces = functools.partial(self.head.pieces, pending)
        tf.distribute.get_replica_context().merge_call(
            functools.partial(self._apply_everywhere, variables),
            args=(finite, aborted, summed, pieces, factors),
        )
        return finite, votes

    def _trust(self, pending, clipping):
        """Computes LARS's trust ratio of the class weights, from norms over shards."""
        gradient, weight = collectives.all_sum(
            [
                self.head.square_norms(pending)["weight"],
                self.head.square_weights(pending),
            ]
        )
        gradient = tf.sqrt(gradient) * tf.cast(clipping, gradient.dtype)
        with self.head_rule.applied(self.optimizer, self.l2):
            return self.optimizer.trust(tf.sqrt(weight), gradient)

    def _count(self, unhealthy):
        if self.votes is None:
            return collectives.all_sum(unhealthy), {}
        return self.votes.count(unhealthy)

    def _apply_everywhere(  # noqa: PLR0913 - arguments of merge_call
        self, variables, strategy, finite, aborted, summed, pieces, factors
    ):
        """Applies the update in cross-replica context, where it can be conditional."""

        def update():
            rate = tf.convert_to_tensor(self.optimizer.learning_rate)
            step = tf.convert_to_tensor(self.optimizer.iterations)
            for variable, gradient in zip(variables, summed, strict=True):
                rule = self.layer_rules.get(id(variable), COMMON)
                strategy.extended.update(
                    variable.value,
                    functools.partial(self._update_one, rule),
                    args=(gradient, rate),
                    group=False,
                )
            if self.rules is not None:
                strategy.extended.call_for_each_replica(
                    self._update_shards, args=(rate, step, pieces, factors)
                )
            if self.averages is not None:
                self.averages.update(step)
            self.optimizer.iterations.assign_add(1)
            return tf.constant(True)

        flag = strategy.experimental_local_results(finite)[0]
        tf.cond(flag, update, lambda: tf.constant(False))
        if self.loss_scale is not None and aborted is None:
            self.loss_scale.update(flag)
        elif self.loss_scale is not None:
            aborted = strategy.experimental_local_results(aborted)[0]
            tf.cond(aborted, lambda: None, lambda: self.loss_scale.update(flag))

    def _update_shards(self, rate, step, pieces, factors):
        previous = []
        for piece in pieces():
            # Update one tile after the other: a gradient is as large as its tile, and
            # only one at a time should be in memory.
            with tf.control_dependencies(previous):
                done = self.rules.update(*piece, rate=rate, step=step, factors=factors)
            previous = [done]

    def _update_one(self, rule, variable, gradient, rate):
        """Applies decoupled weight decay and the rule to a weight, in Keras's order."""
        if not rule.rate_factor:
            return  # the weight must not change, and Ftrl would divide by a rate of 0
        rate = rule.rate(rate)
        with rule.applied(self.optimizer, self.l2) as l2:
            if l2 and private_apis.uses_weight_decay(self.optimizer, variable):
                gradient += l2 * tf.convert_to_tensor(variable)
            if decays(self.optimizer, variable):
                factor = tf.cast(rate, variable.dtype) * self.optimizer.weight_decay
                variable.assign_sub(factor * variable)
            self.optimizer.update_step(gradient, variable, rate)

    def _clip(self, replicated, pending):
        """Applies Keras's clipping options to the gradients of the global batch.

        Returns:
            (clipped gradients of the replicated weights, `{name: scalar}` factors for
            the shards' gradients). `RowRules` applies `clipvalue` to the shards.
        """
        optimizer = self.optimizer
        factors = {}
        if self.rules is not None:
            factors = {name: tf.ones([]) for name in self.rules.arrays}
        if optimizer.clipvalue:
            bound = optimizer.clipvalue
            replicated = [tf.clip_by_value(g, -bound, bound) for g in replicated]
        bound = optimizer.clipnorm or optimizer.global_clipnorm
        if not bound:
            return replicated, factors
        squares = [tf.reduce_sum(tf.square(g)) for g in replicated]
        shard_squares = []
        if factors:
            # Keras clips by the norm of a whole weight: use the norm over all shards.
            norms = self.head.square_norms(pending)
            shard_squares = collectives.all_sum([norms[name] for name in factors])
        if optimizer.global_clipnorm:
            total = tf.add_n([tf.cast(s, tf.float32) for s in squares + shard_squares])
            squares = [total] * len(squares)
            shard_squares = [total] * len(shard_squares)
        shrunk = [
            g * tf.cast(_factor(s, bound), g.dtype)
            for g, s in zip(replicated, squares, strict=True)
        ]
        shares = [_factor(s, bound) for s in shard_squares]
        return shrunk, dict(zip(factors, shares, strict=True))


def _check(optimizer, head):
    kind = type(optimizer).__name__
    if optimizer.gradient_accumulation_steps or optimizer.use_ema:
        raise ValueError(
            "Pass gradient_accumulation_steps to plsc_tf.Classifier.compile, and leave "
            f"out use_ema, which is not supported. Received: {kind} with "
            f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps}, "
            f"use_ema={optimizer.use_ema}"
        )
    usable = (
        "Use plsc_tf.Momentum or keras.optimizers.SGD, Adam, AdamW, RMSprop, Adagrad, "
        "Adadelta, Adamax, Ftrl or Lion"
    )
    ordinary = keras.optimizers.Optimizer
    if private_apis.has_own_update(optimizer) or (
        type(optimizer).update_step is ordinary.update_step
    ):
        raise ValueError(
            f"{kind} does more than its update_step, but plsc_tf.Classifier applies "
            f"only update_step. {usable}."
        )
    if head is not None and kind in NOT_ROW_WISE:
        raise ValueError(
            f"{kind} cannot update a weight that is split across replicas. {usable}, "
            "or use a replicated plsc_tf.DenseHead."
        )


def _all_finite(tensors):
    checks = [tf.reduce_all(tf.math.is_finite(t)) for t in tensors]
    return tf.reduce_all(tf.stack(checks))


def _factor(square, bound):
    """Returns the factor, at most 1, that limits a gradient's norm to the bound."""
    return bound / tf.maximum(tf.sqrt(square), bound)
