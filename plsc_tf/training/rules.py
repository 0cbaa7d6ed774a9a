"""Applies a Keras optimizer to class shards, tile by tile."""

import dataclasses
import math
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from plsc_tf import graphs, private_apis, pseudorandom
from plsc_tf.heads.layout import COMPILE_ROWS
from plsc_tf.heads.second_pass import part_of_tile
from plsc_tf.heads.tiles import read
from plsc_tf.parallel import collectives, packing
from plsc_tf.parallel.rows import ShardedRows, outside_scope
from plsc_tf.requirements import require
from plsc_tf.training.average import SLOT, Averaging, mixed
from plsc_tf.training.weight_rules import COMMON, WeightRule


@dataclasses.dataclass(eq=False, repr=False)
class RowRules:
    """The update rule of a Keras optimizer as a function of tensors, and its slots.

    A strategy cannot apply an optimizer to shards, because it would sum the gradients
    of different classes. So a copy of the optimizer, the twin, is built on stand-in
    variables of one row. Its `update_step` runs on a tile's tensors in place of the
    stand-ins (`keras.StatelessScope`), compiled into one pass that reads weights,
    gradient and slots once and updates weights and slots in place.

    Args:
        optimizer: a Keras optimizer whose `update_step` updates each row independently.
        arrays: `{name: ShardedRows}`.
        gradients: function of a tile's arrays and its `part_of_tile` that returns
            `{name: (gradient, share)}`; share · weight is subtracted from the
            gradient unless share is None.
        l2: factor of an L2 penalty on every weight, added to the clipped gradients.
        slot_dtype: name of the dtype of the stored slots in `packing.DTYPES`.
        seed: seed of the stochastic rounding of weights and slots in 16 or 8 bits.
        averaging: the `Averaging` of the rows, which adds a slot, or None.
        weight_rule: the head's `WeightRule`.

    Attributes:
        twin: the copy of the optimizer.

    Raises:
        ValueError: the optimizer has state other than one number per weight, or slots
            that 8 bits cannot hold.
    """

    optimizer: keras.optimizers.Optimizer
    arrays: Mapping[str, ShardedRows]
    gradients: Callable
    _: dataclasses.KW_ONLY
    l2: float = 0.0
    slot_dtype: str = "float32"
    seed: int = 0
    averaging: Averaging | None = None
    weight_rule: WeightRule = COMMON

    def __post_init__(self) -> None:
        arrays, kind = self.arrays, type(self.optimizer).__name__
        self._stand_ins, self.twin = outside_scope(
            lambda: _make_twin(self.optimizer, arrays)
        )
        self._l2 = self.weight_rule.decay(self.twin, self.l2)
        self._slot_stand_ins: dict[str, list] = {name: [] for name in arrays}
        self._slots: dict[str, dict[str, ShardedRows]] = {name: {} for name in arrays}
        dtype = packing.DTYPES[self.slot_dtype]
        for variable in self.twin.variables:
            if variable is self.twin.iterations or variable.shape == ():
                continue  # the twin's step counter and learning rate
            name, slot = self._owner(variable, kind)
            first = float(np.ravel(variable.numpy())[0])
            rows = arrays[name].filled(first, f"head_{name}_{slot}", dtype)
            self._slot_stand_ins[name].append(variable)
            self._slots[name][slot] = rows
        if packing.is_packed(dtype):
            self._check_signs(kind)
        for name in arrays if self.averaging else ():
            # The last slot is the average, which the optimizer's rule does not use.
            rows, label = arrays[name], f"head_{name}_{SLOT}"
            self._slots[name][SLOT] = rows.filled(0.0, label, rows.stored_dtype)
        # A class may have several rows, `[classes, sub_centers, emb]`.
        sizes = (one.tile_rows * math.prod(one.shape[1:-1]) for one in arrays.values())
        compiled = max(sizes) >= COMPILE_ROWS
        self._unpack = packing.unpacker(arrays["weight"].stored_dtype, compiled)
        self._change = graphs.with_xla(self._change_arrays, compiled)
        self._each_tile = graphs.EachTile(self._update_tile)

    def _owner(self, variable, kind):
        """Returns the names of the weight that a slot belongs to and of the slot."""
        for name, stand_in in self._stand_ins.items():
            prefix = f"{stand_in.name}_"
            if variable.name.startswith(prefix) and variable.shape == stand_in.shape:
                return name, variable.name.removeprefix(prefix)
        raise ValueError(
            f"{kind} cannot update a head that is split across replicas: each of its "
            f"variables must have the shape of the head's {' or '.join(self.arrays)}. "
            f"Received: {variable.name} of shape {tuple(variable.shape)}. Use another "
            "optimizer, or a replicated plsc_tf.DenseHead."
        )

    def _check_signs(self, kind):
        """Refuses 8 bits for sums of squares: many would be 0, and rules divide by it.

        A slot that does not depend on the sign of the first gradient is such a sum.
        """
        name, slots = "weight", self._slot_stand_ins["weight"]
        stand_in, outcomes = self._stand_ins[name], []
        for sign in 1.0, -1.0:
            with keras.StatelessScope() as scope:
                gradient = sign * tf.ones_like(stand_in.value)
                apply_rule(self.twin, stand_in, gradient, tf.constant(1.0), 0.0)
            outcomes.append([scope.get_current_value(slot) for slot in slots])
        for slot, *values in zip(self._slots[name], *outcomes, strict=True):
            rule = f"head_slot_dtype=int8 is not for {kind}, which divides by {slot!r}"
            advice = "Set head_slot_dtype=bfloat16, or use Momentum, SGD or Lion"
            require(not np.array_equal(*values), rule, advice)

    def slots(self) -> dict[str, ShardedRows]:
        """Returns the shards' optimizer state: `{"weight/velocity": ShardedRows}`."""
        own = self._slots.items()
        return {f"{name}/{slot}": rows for name, s in own for slot, rows in s.items()}

    def averages(self) -> list[tuple[ShardedRows, ShardedRows]]:
        """Returns the arrays, each with the averages of its rows."""
        return [(self.arrays[name], s[SLOT]) for name, s in self._slots.items()]

    def update(
        self, tiles: tuple, scalars: tuple, finite: tf.Tensor | None = None
    ) -> None:
        """Computes the gradients of each tile and updates weights and slots in place.

        Call it in replica context. If only some rows are chosen, the weights and slots
        of the other rows do not change, as in arcface_torch.

        Args:
            tiles: the result of `SecondPass.each_tile`.
            scalars: (learning rate; int64 number of updates so far; factors:
                `{name: scalar}` of the gradients (clipping), and `{"name/rate":
                scalar}` of the learning rate (LARS)).
            finite: bool scalar, False to leave everything unchanged; None means True.
        """
        rate, step, factors = scalars
        each, starts, pending = tiles
        every = {n: [r.local() for r in s.values()] for n, s in self._slots.items()}
        whole = []
        for index, (handles, chosen, own) in enumerate(each):
            number = index if chosen is None else 0
            slots = {name: [rows[number] for rows in s] for name, s in every.items()}
            whole.append((handles, slots, chosen, own))
        first = self.arrays["weight"].split.first(collectives.replica_id())
        first = graphs.runtime_constant(first)
        scalars = self.weight_rule.rate(rate), step, factors, finite, first
        self._each_tile(whole, starts, (pending, scalars), tf.cast(rate, tf.float32))

    def _update_tile(self, tile, start, shared, last):
        """Updates a tile; the argument `last` makes it wait for the previous one."""
        handles, slots, chosen, own = tile
        pending, (*scalars, first) = shared
        scalars = *scalars, first + start if chosen is None else first
        stored = read(handles, chosen, unpack=tf.identity)
        arrays = {name: self._unpack(rows) for name, rows in stored.items()}
        gradients = self.gradients(arrays, part_of_tile(pending, own, start))
        if chosen is None:
            return {}, self._change(gradients, handles, slots, chosen, scalars)
        values = {n: [slot.sparse_read(chosen) for slot in slots[n]] for n in slots}
        changed = self._change(gradients, stored, values, chosen, scalars)
        pairs = _pairs(handles, slots, changed)
        done = [v.scatter_update(tf.IndexedSlices(new, chosen)) for v, new in pairs]
        with tf.control_dependencies(done):
            return {}, tf.zeros([])

    def _change_arrays(self, gradients, arrays, slots, chosen, scalars):
        """Applies the rule to variables in place, or returns the new tensors."""
        rate, step, factors, finite, first = scalars
        changed = {}
        if chosen is None:
            chosen = tf.range(arrays["weight"].shape[0], dtype=tf.int64)
        classes = first + chosen
        for name, (gradient, share) in gradients.items():
            old = [tf.convert_to_tensor(v) for v in (arrays[name], *slots[name])]
            new = [packing.unpack(value) for value in old]
            new = self._rule(name, gradient, share, new, rate, step, factors)
            pairs = enumerate(zip(new, old, strict=True))
            new = [self._rounded(v, was, classes, step, i) for i, (v, was) in pairs]
            if finite is not None:
                pairs = zip(new, old, strict=True)
                new = [tf.where(finite, *pair) for pair in pairs]
            changed[name] = new
        if not isinstance(arrays["weight"], tf.Variable):
            return changed
        for variable, value in _pairs(arrays, slots, changed):
            variable.assign(value)
        return tf.cast(tf.reshape(changed["weight"][0], [-1])[0], tf.float32)

    def _rounded(self, rows, before, classes, step, number):
        """Stores new rows in the dtype of the rows before them."""
        if rows.dtype == before.dtype:
            return rows
        seed = self.seed * len(packing.DTYPES) + number
        bits = pseudorandom.random_bits(classes, rows.shape[1:], step, seed)
        return packing.pack(rows, before.dtype, before, bits)

    def _rule(self, name, gradient, share, old, rate, step, factors):
        """Returns a tile's new weight and slots for its `old` ones, all tensors."""
        twin, stand_in = self.twin, self._stand_ins[name]
        weight, *slots = old
        average = None if self.averaging is None else slots.pop()
        new = [weight, *slots]
        if self.weight_rule.rate_factor:  # Ftrl divides by the rate
            if f"{name}/rate" in factors:
                rate = rate * tf.cast(factors[f"{name}/rate"], rate.dtype)
            if share is not None:
                gradient -= share[..., None] * weight
            gradient *= tf.cast(factors[name], weight.dtype)
            if bound := self.optimizer.clipvalue:
                gradient = tf.clip_by_value(gradient, -bound, bound)
            stand_ins = [stand_in, *self._slot_stand_ins[name]]
            with keras.StatelessScope() as scope:
                scope.add_update((twin.iterations, step))
                for variable, value in zip(stand_ins, new, strict=True):
                    scope.add_update((variable, tf.cast(value, weight.dtype)))
                apply_rule(twin, stand_in, gradient, rate, self._l2)
            pairs = zip(stand_ins, new, strict=True)
            new = [tf.cast(scope.get_current_value(v), x.dtype) for v, x in pairs]
        if average is not None:
            new.append(mixed(average, new[0], self.averaging.decay_at(step)))
        return new


def _pairs(arrays, slots, changed):
    """Yields a tile's variables and their new values."""
    for name, values in changed.items():
        yield from zip([arrays[name], *slots[name]], values, strict=True)


def _make_twin(optimizer, arrays):
    """Returns stand-ins of one row for the arrays, and the twin built on them."""
    zeros = {n: np.zeros((1, *a.shape[1:]), a.dtype) for n, a in arrays.items()}
    stand_ins = {n: keras.Variable(row, name=f"head_{n}") for n, row in zeros.items()}
    twin = type(optimizer).from_config({**optimizer.get_config(), "learning_rate": 0.0})
    private_apis.copy_exclusions(optimizer, twin)
    twin.whole = False  # read by LARS
    twin.build(list(stand_ins.values()))
    return stand_ins, private_apis.on_tensors(twin)


def apply_rule(
    optimizer: keras.optimizers.Optimizer,
    variable: keras.Variable,
    gradient: tf.Tensor,
    rate: tf.Tensor,
    l2: float,
) -> None:
    """Applies weight decay and an optimizer's rule, in Keras's order.

    Call it in a `keras.StatelessScope`.

    Args:
        optimizer: a `private_apis.OnTensors` optimizer.
        variable: the weight.
        gradient: its gradient, after clipping.
        rate: scalar learning rate.
        l2: factor of an L2 penalty, added to the gradient.
    """
    weight = tf.convert_to_tensor(variable.value)
    if private_apis.uses_weight_decay(optimizer, variable):
        if l2:
            gradient += l2 * weight
        if optimizer.weight_decay is not None:
            factor = tf.cast(rate, weight.dtype) * optimizer.weight_decay
            optimizer.assign_sub(variable, factor * weight)
    optimizer.update_step(gradient, variable, rate)
