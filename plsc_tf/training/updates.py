"""Applies one Keras optimizer to both mirrored weights and class shards."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from plsc_tf import graphs, private_apis
from plsc_tf.heads.base import Head
from plsc_tf.parallel import collectives
from plsc_tf.parallel.collectives import Transport, local_copy
from plsc_tf.parallel.rows import ShardedRows
from plsc_tf.requirements import require
from plsc_tf.training.average import Averages, Averaging, mixed
from plsc_tf.training.loss_scale import LossScale
from plsc_tf.training.optimizers import Lars
from plsc_tf.training.rules import RowRules, apply_rule
from plsc_tf.training.weight_rules import COMMON, WeightRule

# The rules of these optimizers use statistics of a whole weight. Applied to each shard
# separately, they would compute something else.
NOT_ROW_WISE = ("Adafactor", "Lamb", "Muon")


@dataclasses.dataclass(eq=False, repr=False)
class Updater:
    """Clips gradients, decays weights, and updates all weights or none.

    Keras clips gradients before the strategy sums them over the replicas. The strategy
    would also sum the gradients of different shards, which belong to different classes.
    So the updater calls the optimizer's rule (`update_step`) directly; `RowRules` does
    so for shards. Each replica updates its own copies of the mirrored weights. Since
    all replicas have the same gradients, their copies stay equal.

    Args:
        optimizer: the Keras optimizer.
        strategy: the `tf.distribute.Strategy`.
        replicated: list of mirrored `keras.Variable`s.
        head: the sharded head, or None; it has the method `arrays()` and the attributes
            `seed` and `second_pass`, a `plsc_tf.heads.second_pass.SecondPass`.
        l2: factor of an L2 penalty on every weight, added to the clipped gradients,
            for optimizers that have none.
        slot_dtype: dtype of the shards' stored slots, see `RowRules`.
        loss_scale: `plsc_tf.training.loss_scale.LossScale` by which the gradients of
            the replicated weights were multiplied, or None.
        transport: `plsc_tf.parallel.collectives.Transport` for the replicated weights'
            gradients.
        votes: this worker's `plsc_tf.training.ending.Votes` in a cluster, or None.
        averaging: `plsc_tf.training.average.Averaging` of the weights, or None.
        head_rule: the sharded head's `plsc_tf.training.weight_rules.WeightRule`.
        layer_rules: `{id of a keras.Variable: WeightRule}` for mirrored weights.
        jit_compile: whether XLA compiles the update of the mirrored weights, and no
            conditional waits for the host.

    Attributes:
        averages: the `plsc_tf.training.average.Averages`, or None.
        means: list of the mirrored variables of `averages`.

    Raises:
        ValueError: the optimizer cannot update shards, or was not created inside
            `strategy.scope()`.
    """

    optimizer: keras.optimizers.Optimizer
    strategy: tf.distribute.Strategy
    replicated: list[keras.Variable]
    head: Head | None = None
    _: dataclasses.KW_ONLY
    l2: float = 0.0
    slot_dtype: str = "float32"
    loss_scale: LossScale | None = None
    transport: Transport = dataclasses.field(default_factory=Transport)
    votes: Any = None
    averaging: Averaging | None = None
    head_rule: WeightRule = COMMON
    layer_rules: Mapping[int, WeightRule] | None = None
    jit_compile: bool = False

    def __post_init__(self) -> None:
        optimizer, strategy, head = self.optimizer, self.strategy, self.head
        _check_optimizer(optimizer, head)
        with strategy.scope():
            inside = optimizer.built or private_apis.belongs_to(optimizer, strategy)
            rule = "Create the optimizer inside strategy.scope(), like the model"
            require(inside, rule, created_outside=type(optimizer).__name__)
            optimizer.build(self.replicated)
        self.rules = None
        if head is not None:
            self.rules = RowRules(
                optimizer,
                head.arrays(),
                head.second_pass.weight_gradients,
                l2=self.l2,
                slot_dtype=self.slot_dtype,
                seed=head.seed,
                averaging=self.averaging,
                weight_rule=self.head_rule,
            )
        self.averages = None
        self.means: list[keras.Variable] = []
        if self.averaging is not None:
            rows = [] if self.rules is None else self.rules.averages()
            self.averages = Averages(self.averaging, strategy, self.replicated, rows)
            self.means = self.averages.variables
        layer_rules = self.layer_rules or {}
        self._weight_rules = [layer_rules.get(id(v), COMMON) for v in self.replicated]
        self._twins: dict = {}
        for one in set(self._weight_rules):
            # A copy of the optimizer with this weight decay.
            twin = private_apis.on_tensors(optimizer)
            self._twins[one] = twin, one.decay(twin, self.l2)
        rate = private_apis.learning_rate_or_schedule(optimizer)
        # The number of updates is one of them.
        self._slots = [v for v in optimizer.variables if v is not rate]
        self._update = graphs.with_xla(self._update_copies, self.jit_compile)

    def slots(self) -> dict[str, ShardedRows]:
        """Returns the shards' optimizer state: `{"weight/velocity": ShardedRows}`."""
        return {} if self.rules is None else self.rules.slots()

    def apply(
        self,
        replicated_gradients: list[tf.Tensor | None],
        pending: Any,
        healthy: tf.Tensor,
        undo: tuple[list[tf.Variable], list[tf.Tensor]] = ([], []),
        figures: Mapping[str, tf.Tensor] | None = None,
        proceed: tf.Tensor | None = None,
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
            undo: (variables, their earlier values), such as batch-norm statistics, to
                restore if the update is not applied.
            figures: `{name: scalar}` further numbers to sum over all replicas.
            proceed: bool scalar, False to abort the step; None, and in a cluster,
                without effect.

        Returns:
            (bool scalar, True if the update was applied; sums of the figures, and the
            outcome of the workers' votes, see `Votes.outcome`).
        """
        scale = None if self.loss_scale is None else self.loss_scale.value()
        pairs = enumerate(replicated_gradients)
        gradients = {i: gradient for i, gradient in pairs if gradient is not None}
        if gradients:
            sums = self.transport.all_sum(list(gradients.values()))
            gradients = dict(zip(gradients, sums, strict=True))
        own = tf.cast(~healthy, tf.float32), self._shard_squares(pending)
        votes = [] if self.votes is None else self.votes.own()
        # One collective sums everything that the replicas have to agree on.
        values = *own, dict(figures or {}), votes
        unhealthy, sums, results, votes = collectives.sum_scalars(values)
        squares = dict.fromkeys([] if self.rules is None else self.rules.arrays) | sums
        if self.votes is not None:
            results |= self.votes.outcome(votes)
        elif proceed is not None:
            results["aborted"] = ~proceed
        allowed, aborted = unhealthy < 0.5, results.get("aborted")
        if aborted is not None:
            allowed &= ~aborted
        rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        step = tf.convert_to_tensor(self.optimizer.iterations)
        groups = self.replicated, self._slots, self.means
        copies = [[local_copy(variable.value) for variable in g] for g in groups]
        undo = [local_copy(variable) for variable in undo[0]], undo[1]
        checks = gradients, allowed, scale, squares
        finite, factors = self._update(copies, undo, checks, rate, step)
        if self.head is not None and self.rules is not None:
            if "rows" in squares:
                gradient = tf.sqrt(squares["weight"]) * factors["weight"]
                trust = self.rules.twin.trust(tf.sqrt(squares["rows"]), gradient)
                factors["weight/rate"] = trust
            tiles = self.head.second_pass.each_tile(pending)
            update = functools.partial(self.rules.update, tiles, (rate, step, factors))
            if self.jit_compile:
                update(finite=finite)
            else:
                # On CPUs, selecting old or new values takes longer than a conditional.
                tf.cond(finite, update, lambda: None)
        if self.loss_scale is not None:
            self.loss_scale.update(finite, aborted)
        return finite, results

    def _shard_squares(self, pending):
        """Returns squared norms over this replica's shard.

        Returns:
            `{"weight": scalar}`, of each array's gradient, and with LARS "rows", of the
            weights; empty if they are not needed.
        """
        optimizer = self.optimizer
        lars = isinstance(optimizer, Lars)
        needed = lars or optimizer.clipnorm or optimizer.global_clipnorm
        if self.rules is None or not needed:
            return {}
        squares = self.head.second_pass.square_norms(pending)
        if not lars:
            del squares["rows"]
        return squares

    def _update_copies(self, copies, undo, checks, rate, step):
        """Updates a replica's copies of weights, slots and averages, or nothing.

        With XLA, it selects old or new values, so that the device does not wait for the
        host. Without, a conditional takes less memory.

        Args:
            copies: the replica's variables of weights, slots and averages.
            undo: (variables, their earlier values), to restore if the update is not
                applied.
            checks: the arguments of `_check`.
            rate: scalar learning rate.
            step: int64 scalar, number of updates so far.

        Returns:
            (bool scalar, True if the update was applied; factors of the gradients of
            the shards, `{"weight": scalar}`).
        """
        finite, gradients, factors = self._check(*checks)
        change = functools.partial(self._change, copies, gradients, rate, step)
        if self.jit_compile:
            pairs = zip(*undo, strict=True)
            states = [(v, old, tf.convert_to_tensor(v)) for v, old in pairs]
            for variable, old, new in [*change(), *states]:
                variable.assign(tf.where(finite, new, old))
        else:

            def apply():
                return _assign((variable, new) for variable, _, new in change())

            tf.cond(finite, apply, lambda: _assign(zip(*undo, strict=True)))
        return finite, factors

    def _check(self, gradients, allowed, scale, squares):
        """Checks, unscales and clips gradients, with Keras's options of clipping.

        Args:
            gradients: `{number of a weight: gradient over the global batch}`, times the
                scale.
            allowed: bool scalar, False to apply no update.
            scale: the loss scale, or None.
            squares: squared norm of each array's gradient over all shards, or None.

        Returns:
            (bool scalar, whether to apply the update; the gradients; the factors).
        """
        if found := list(gradients.values()):
            checks = [tf.reduce_all(tf.math.is_finite(g)) for g in found]
            allowed &= tf.reduce_all(tf.stack(checks))
        if scale is not None:
            found = [g / tf.cast(scale, g.dtype) for g in found]
        found, factors = self._clip(found, squares)
        return allowed, dict(zip(gradients, found, strict=True)), factors

    def _clip(self, gradients, squares):
        """Clips by value or norm; Keras clips by the norm of a weight over all shards.

        Returns:
            (clipped gradients, factors of the shards' gradients).
        """
        optimizer = self.optimizer
        if bound := optimizer.clipvalue:
            gradients = [tf.clip_by_value(g, -bound, bound) for g in gradients]
        squares = {name: value for name, value in squares.items() if name != "rows"}
        bound = optimizer.clipnorm or optimizer.global_clipnorm
        if not bound or not (gradients or squares):
            return gradients, {name: tf.ones([]) for name in squares}
        own = [tf.reduce_sum(tf.square(g)) for g in gradients]
        of_shards = list(squares.values())
        if optimizer.global_clipnorm:
            total = tf.add_n([tf.cast(s, tf.float32) for s in own + of_shards])
            own, of_shards = [total] * len(own), [total] * len(squares)
        pairs = zip(gradients, own, strict=True)
        clipped = [g * tf.cast(_factor(s, bound), g.dtype) for g, s in pairs]
        factors = [_factor(square, bound) for square in of_shards]
        return clipped, dict(zip(squares, factors, strict=True))

    def _change(self, copies, gradients, rate, step):
        """Computes the update as a list of (variable, old value, new value)."""
        variables = [*self.replicated, *self._slots]
        own = [*copies[0], *copies[1]]
        old = [tf.convert_to_tensor(variable) for variable in own]
        with keras.StatelessScope() as scope:
            for variable, value in zip(variables, old, strict=True):
                scope.add_update((variable, value))
            for number, gradient in gradients.items():
                variable, rule = self.replicated[number], self._weight_rules[number]
                # With a rate of 0 the weight must not change; Ftrl would divide by it.
                if rule.rate_factor:
                    twin, l2 = self._twins[rule]
                    apply_rule(twin, variable, gradient, rule.rate(rate), l2)
            scope.add_update((self.optimizer.iterations, step + 1))
            new = [scope.get_current_value(variable) for variable in variables]
        if self.averages is not None:
            decay = self.averages.averaging.decay_at(step)
            means = [tf.convert_to_tensor(mean) for mean in copies[2]]
            own, old = own + copies[2], old + means
            new += [mixed(m, w, decay) for m, w in zip(means, new, strict=False)]
        changes = zip(own, old, new, strict=True)
        return [change for change in changes if change[1] is not change[2]]


def _assign(pairs):
    """Assigns values to variables."""
    for variable, value in pairs:
        variable.assign(value)


def _factor(square, bound):
    """Returns the factor, at most 1, that limits a gradient's norm to the bound."""
    return bound / tf.maximum(tf.sqrt(square), bound)


def _check_optimizer(optimizer, head):
    kind = type(optimizer).__name__
    parts = optimizer.gradient_accumulation_steps
    average = optimizer.use_ema
    given = f"gradient_accumulation_steps={parts}, use_ema={average}"
    advice = "Pass the steps to plsc_tf.Classifier.compile, and leave out use_ema"
    require(not (parts or average), f"{kind}({given}) is not supported", advice)
    usable = "Use plsc_tf.Momentum or keras.optimizers.SGD, Adam, AdamW, RMSprop, "
    usable += "Adagrad, Adadelta, Adamax, Ftrl or Lion"
    has_rule = type(optimizer).update_step is not keras.optimizers.Optimizer.update_step
    rule = f"{kind} does more than update_step, which is all that Classifier applies"
    require(has_rule and not private_apis.has_own_update(optimizer), rule, usable)
    rule = f"{kind} cannot update a weight that is split across replicas"
    advice = f"{usable}, or use a replicated plsc_tf.DenseHead"
    require(head is None or kind not in NOT_ROW_WISE, rule, advice)
