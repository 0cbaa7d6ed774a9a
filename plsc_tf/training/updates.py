"""Applies one Keras optimizer to mirrored weights and to class shards alike."""

import functools

import keras
import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.parallel.rows import ShardedRows, outside_scope

# Their rule looks at a whole weight at once: applied shard by shard it would mean
# something else than Keras means.
NOT_ROW_WISE = ("Adafactor", "Lamb", "Muon")


class Updater:
    """Clips, decays and updates all weights, or none of them.

    A strategy's own way of applying an optimizer cannot be used for shards: it
    would sum the gradients of different classes, and Keras clips before it sums.
    So the rule, `optimizer.update_step`, is called directly: inside
    `strategy.extended.update` for mirrored weights, and through one copy of the
    optimizer per replica, with slots of its own, for that replica's shards.

    Args:
        optimizer: the Keras optimizer.
        strategy: the `tf.distribute.Strategy`.
        replicated: list of mirrored `keras.Variable`s.
        sharded: `{name: ShardedRows}`; may be empty.
        l2: factor of an L2 penalty on every weight, added to the clipped gradients,
            for optimizers that have none of their own.

    Raises:
        ValueError: the optimizer cannot mean for shards what Keras means by it.
    """

    def __init__(self, optimizer, strategy, replicated, sharded, l2=0.0):
        _check(optimizer, sharded)
        self.l2 = l2
        self.optimizer = optimizer
        self.replicated = replicated
        self.sharded = sharded
        with strategy.scope():
            if not optimizer.built and optimizer._distribution_strategy is not strategy:
                raise ValueError(
                    "Make the optimizer inside strategy.scope(), beside the model. "
                    f"Received: a {type(optimizer).__name__} made elsewhere."
                )
            optimizer.build(replicated)
        self._copies = []
        if sharded:
            count = strategy.num_replicas_in_sync
            self._copies = outside_scope(lambda: self._make_copies(count))

    def _make_copies(self, count):
        config = {**self.optimizer.get_config(), "learning_rate": 0.0}
        copies = []
        for replica in range(count):
            variables = [rows.variables[replica] for rows in self.sharded.values()]
            copy = type(self.optimizer).from_config(dict(config))
            copy._exclude_from_weight_decay_pattern = getattr(
                self.optimizer, "_exclude_from_weight_decay_pattern", None
            )
            with tf.device(variables[0].value.device):
                copy.build(variables)
            copies.append(copy)
        return copies

    def slots(self):
        """The optimizer's state for the shards: `{"weight/velocity": ShardedRows}`."""
        slots = {}
        if not self._copies:
            return slots
        for same in zip(*(copy.variables for copy in self._copies), strict=True):
            if same[0].shape.rank == 0:
                continue  # the copies' own step counter and rate
            name, rows, slot = self._owner(same[0])
            slots[f"{name}/{slot}"] = ShardedRows(list(same), rows.split)
        return slots

    def _owner(self, slot):
        """Which sharded weight a slot belongs to, and what the slot is called."""
        for name, rows in self.sharded.items():
            prefix = rows.variables[0].path.replace("/", "_") + "_"
            if slot.name.startswith(prefix):
                return name, rows, slot.name.removeprefix(prefix)
        raise ValueError(
            f"{type(self.optimizer).__name__} keeps {slot.name}, which belongs to none "
            f"of {list(self.sharded)} and could not be saved."
        )

    def apply(self, replicated_gradients, sharded_gradients, healthy):
        """Updates everything, on every replica, unless something is not finite.

        Called in replica context.

        Args:
            replicated_gradients: this replica's share, one per mirrored weight,
                None where a weight has no part in the loss.
            sharded_gradients: of this replica's shards, complete.
            healthy: bool scalar, whether this replica's losses are finite.

        Returns:
            bool scalar: whether the update was applied.
        """
        present = [i for i, g in enumerate(replicated_gradients) if g is not None]
        summed = []
        if present:
            summed = collectives.all_sum([replicated_gradients[i] for i in present])
        healthy &= _all_finite([*summed, *sharded_gradients])
        unhealthy = collectives.all_sum(tf.cast(~healthy, tf.float32))
        finite = unhealthy < 0.5
        summed, sharded_gradients = self._clip(summed, sharded_gradients)
        variables = [self.replicated[i].value for i in present]
        tf.distribute.get_replica_context().merge_call(
            functools.partial(self._apply_everywhere, variables),
            args=(finite, summed, sharded_gradients),
        )
        return finite

    def _apply_everywhere(self, variables, strategy, finite, summed, sharded):
        """Cross-replica: the only place where an update may be conditional."""

        def update():
            rate = tf.convert_to_tensor(self.optimizer.learning_rate)
            step = tf.convert_to_tensor(self.optimizer.iterations)
            for variable, gradient in zip(variables, summed, strict=True):
                rule = functools.partial(
                    self._update_one, self.optimizer, _decays(self.optimizer, variable)
                )
                strategy.extended.update(
                    variable, rule, args=(gradient, rate), group=False
                )
            if self.sharded:
                strategy.extended.call_for_each_replica(
                    self._update_shards, args=(rate, step, sharded)
                )
            self.optimizer.iterations.assign_add(1)
            return tf.constant(True)

        flag = strategy.experimental_local_results(finite)[0]
        tf.cond(flag, update, lambda: tf.constant(False))

    def _update_shards(self, rate, step, gradients):
        copy = self._copies[collectives.replica_id()]
        copy.iterations.assign(step)
        for rows, gradient in zip(self.sharded.values(), gradients, strict=True):
            variable = rows.local()
            self._update_one(copy, _decays(copy, variable), variable, gradient, rate)

    def _update_one(self, optimizer, decays, variable, gradient, rate):
        """Keras's order: decoupled weight decay first, then the rule."""
        if self.l2:
            gradient += self.l2 * tf.convert_to_tensor(variable)
        if decays:
            factor = tf.cast(rate, variable.dtype) * optimizer.weight_decay
            variable.assign_sub(factor * variable)
        optimizer.update_step(gradient, variable, rate)

    def _clip(self, replicated, sharded):
        """Keras's clipping options, on gradients of the global batch."""
        optimizer = self.optimizer
        if optimizer.clipvalue:
            bound = optimizer.clipvalue
            return (
                [tf.clip_by_value(g, -bound, bound) for g in replicated],
                [tf.clip_by_value(g, -bound, bound) for g in sharded],
            )
        bound = optimizer.clipnorm or optimizer.global_clipnorm
        if not bound:
            return replicated, sharded
        squares = [tf.reduce_sum(tf.square(g)) for g in replicated]
        shard_squares = [tf.reduce_sum(tf.square(g)) for g in sharded]
        if shard_squares:
            # A weight that is cut into shards is one weight to Keras.
            shard_squares = collectives.all_sum(shard_squares)
        if optimizer.global_clipnorm:
            total = tf.add_n([tf.cast(s, tf.float32) for s in squares + shard_squares])
            squares = [total] * len(squares)
            shard_squares = [total] * len(shard_squares)
        return (
            [_shrink(g, s, bound) for g, s in zip(replicated, squares, strict=True)],
            [_shrink(g, s, bound) for g, s in zip(sharded, shard_squares, strict=True)],
        )


def _check(optimizer, sharded):
    kind = type(optimizer).__name__
    if optimizer.gradient_accumulation_steps or optimizer.use_ema:
        raise ValueError(
            "gradient_accumulation_steps and use_ema of Keras optimizers are not "
            f"supported by plsc_tf.Classifier yet. Received: {kind} with "
            f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps}, "
            f"use_ema={optimizer.use_ema}"
        )
    usable = (
        "Use plsc_tf.Momentum or keras.optimizers.SGD, Adam, AdamW, RMSprop, Adagrad, "
        "Adadelta, Adamax, Ftrl or Lion"
    )
    ordinary = keras.optimizers.Optimizer
    if type(optimizer)._backend_update_step is not ordinary._backend_update_step or (
        type(optimizer).update_step is ordinary.update_step
    ):
        raise ValueError(
            f"{kind} does more than the rule of its update_step, which is what "
            f"plsc_tf.Classifier applies. {usable}."
        )
    if sharded and kind in NOT_ROW_WISE:
        raise ValueError(
            f"{kind} cannot update a weight that is split over replicas. {usable}, or "
            "a replicated plsc_tf.DenseHead."
        )


def _decays(optimizer, variable):
    """Whether Keras's decoupled weight decay applies to a variable."""
    return optimizer.weight_decay is not None and optimizer._use_weight_decay(variable)


def _all_finite(tensors):
    checks = [tf.reduce_all(tf.math.is_finite(t)) for t in tensors]
    return tf.reduce_all(tf.stack(checks))


def _shrink(gradient, square, bound):
    norm = tf.cast(tf.sqrt(square), gradient.dtype)
    return gradient * (bound / tf.maximum(norm, bound))
