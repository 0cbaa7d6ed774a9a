"""Updates all mirrored weights of a replica in one function."""

import dataclasses
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.graphs import with_xla
from plsc_tf.parallel.collectives import local_copy
from plsc_tf.training.average import Averages, mixed
from plsc_tf.training.rules import apply_rule
from plsc_tf.training.weight_rules import COMMON, WeightRule


@dataclasses.dataclass(eq=False, repr=False)
class MirroredRules:
    """Checks and clips gradients and applies a Keras optimizer's rule, on each replica.

    Each replica updates its own copies of the weights. Since all replicas have the same
    gradients, their copies stay equal.

    Args:
        optimizer: the built Keras optimizer.
        weights: list of mirrored `keras.Variable`s.
        weight_rules: `{id of a keras.Variable: WeightRule}`.
        l2: factor of an L2 penalty on every weight, for optimizers that have none.
        averages: the `Averages` of the weights, or None.
        jit_compile: whether XLA compiles the update.
    """

    optimizer: keras.optimizers.Optimizer
    weights: Sequence[keras.Variable]
    weight_rules: Mapping[int, WeightRule]
    l2: float
    averages: Averages | None
    jit_compile: bool

    def __post_init__(self) -> None:
        optimizer = self.optimizer
        self.rules = [self.weight_rules.get(id(one), COMMON) for one in self.weights]
        # Each rule has a copy of the optimizer with its weight decay.
        self.twins = {rule: private_apis.on_tensors(optimizer) for rule in self.rules}
        twins = self.twins.items()
        self.penalties = {rule: rule.decay(twin, self.l2) for rule, twin in twins}
        rate = private_apis.learning_rate_or_schedule(optimizer)
        # The number of updates is one of them.
        self.slots = [v for v in optimizer.variables if v is not rate]
        self.means = [] if self.averages is None else self.averages.variables
        compiled = self.jit_compile
        self._update = with_xla(self._selecting) if compiled else self._conditionally

    def update(
        self,
        checks: tuple,
        undo: tuple[list[tf.Variable], list[tf.Tensor]],
        rate: tf.Tensor,
        step: tf.Tensor,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Updates the calling replica's copies unless a gradient is NaN or infinite.

        Args:
            checks: the arguments of `_check`.
            undo: (variables, their earlier values), to restore if the update is not
                applied.
            rate: scalar learning rate.
            step: int64 scalar, number of updates so far.

        Returns:
            (bool scalar, True if the update was applied; factors of the gradients of
            the shards, `{"weight": scalar}`).
        """
        groups = self.weights, self.slots, self.means
        copies = [[local_copy(variable.value) for variable in g] for g in groups]
        undo = [local_copy(variable) for variable in undo[0]], undo[1]
        return self._update(copies, undo, checks, rate, step)

    def _selecting(self, copies, undo, checks, rate, step):
        """Assigns old or new values, so that the device does not wait for the host."""
        finite, gradients, factors = self._check(*checks)
        for variable, old, new in self._change(copies, gradients, rate, step):
            variable.assign(tf.where(finite, new, old))
        for variable, before in zip(*undo, strict=True):
            now = tf.convert_to_tensor(variable)
            variable.assign(tf.where(finite, now, before))
        return finite, factors

    def _conditionally(self, copies, undo, checks, rate, step):
        """Does the same in a conditional, which takes less memory without XLA."""
        finite, gradients, factors = self._check(*checks)

        def change():
            for variable, _, new in self._change(copies, gradients, rate, step):
                variable.assign(new)
            return finite

        def leave():
            for variable, before in zip(*undo, strict=True):
                variable.assign(before)
            return finite

        tf.cond(finite, change, leave)
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
        found = list(gradients.values())
        if found:
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
        bound = optimizer.clipvalue
        if bound:
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
        variables = [*self.weights, *self.slots]
        own = [*copies[0], *copies[1]]
        old = [tf.convert_to_tensor(variable) for variable in own]
        with keras.StatelessScope() as scope:
            for variable, value in zip(variables, old, strict=True):
                scope.add_update((variable, value))
            for number, gradient in gradients.items():
                variable, rule = self.weights[number], self.rules[number]
                # With a rate of 0 the weight must not change; Ftrl would divide by it.
                if rule.rate_factor:
                    twin, l2 = self.twins[rule], self.penalties[rule]
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


def _factor(square, bound):
    """Returns the factor, at most 1, that limits a gradient's norm to the bound."""
    return bound / tf.maximum(tf.sqrt(square), bound)
