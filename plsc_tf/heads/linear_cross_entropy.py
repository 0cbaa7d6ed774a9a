"""Cross entropy of a linear layer for any model, without a tensor of all logits.

Blocks of examples go through the tiles of `plsc_tf.heads.tiled_softmax`. The logits of
a block are kept until its softmax is known, so the three matrix products of a linear
layer are enough, as in Liger Kernel (arXiv:2410.10989, section 3.2).
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.heads.base import Head
from plsc_tf.heads.kernels import DTYPES
from plsc_tf.heads.margins import SOFTMAX, MarginLoss
from plsc_tf.heads.tiles import Exchange
from plsc_tf.requirements import require, require_one_of

REDUCTIONS = ("mean", "sum", "none")
IGNORE_INDEX = -100  # as in PyTorch
# Smaller blocks would spend their time on reading weights and adding gradients.
LEAST_BLOCK = 32


@dataclasses.dataclass(frozen=True)
class TensorRows:
    """Gives `LocalTiles` the tiles of a tensor `[classes, ...]`."""

    tensor: tf.Tensor
    tile_rows: int

    def local(self) -> list[tf.Tensor]:
        """Returns the tiles."""
        starts = range(0, self.tensor.shape[0], self.tile_rows)
        return [self.tensor[start : start + self.tile_rows] for start in starts]


class TensorHead(Head):
    """A head on one replica whose weights are given tensors.

    Args:
        weight: `[classes, features]`.
        bias: `[classes]`; None with margins.
        **options: see `Head`.
    """

    sharded = True

    def __init__(self, weight: tf.Tensor, bias: tf.Tensor | None, **options: Any):
        classes, features = weight.shape
        super().__init__(classes, **options)
        kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
        self._make_passes(features, 1, kind, math.inf)  # the block limits the logits
        self.exchange = Exchange(classes, None)
        self.state_variables = {}
        self.weight = TensorRows(weight, self.layout.rows_per_tile)
        self.bias = None if bias is None else TensorRows(bias, self.weight.tile_rows)

    def block(self, count: Any) -> Any:
        """Returns the number of examples in a block, so that blocks are alike."""
        # No examples are one block, too.
        most = min(self.logits_mb * 1e6 / (4 * self.num_classes), tf.int32.max)
        blocks = 1 + abs(count - 1) // max(LEAST_BLOCK, int(most))
        return -(-count // blocks)

    def add_weight_gradients(self, sums: dict, pending: dict, in_xla: bool) -> None:
        """Adds a block's gradients of weight and bias to `sums`, tile by tile."""
        last: tf.Tensor = sums["weight"]
        for start, handles, chosen, part in self.second_pass.pieces(pending):
            with tf.control_dependencies([last]):
                arrays = self.softmax.kernels.read(handles, chosen)
                found = self.second_pass.weight_gradients(arrays, part)
            for name, (gradient, share) in found.items():
                if share is not None:
                    gradient -= share[:, None] * arrays[name]
                rows = tf.range(gradient.shape[0]) + start
                sums[name] = add_rows(sums[name], rows, gradient, in_xla)
            last = sums["weight"]


def linear_cross_entropy(  # noqa: PLR0913 - most of them have defaults
    x: Any,
    weight: Any,
    labels: Any,
    bias: Any = None,
    *,
    sample_weight: Any = None,
    reduction: str = "mean",
    ignore_index: int = IGNORE_INDEX,
    label_smoothing: float = 0.0,
    margins: MarginLoss | None = None,
    scale: float = 64.0,
    logits_mb: float = 60,
) -> tf.Tensor:
    """Computes the cross entropy of the logits x · weightᵀ + bias, block by block.

    If a gradient tape watches an argument, "mean" and "sum" compute its gradient
    together with the loss; "none" computes the logits again for it. There are no second
    derivatives: a tape returns None for them.

    Example:
        ```python
        loss = plsc_tf.linear_cross_entropy(hidden, embedding.embeddings, next_tokens)
        ```

    Args:
        x: `[..., features]` of type Keras's float type, bfloat16 or float16. The
            products have this type, all sums have Keras's float type.
        weight: `[classes, features]`, as in PyTorch and in a Keras Embedding; the
            kernel of a Keras Dense is its transpose.
        labels: integers `[...]` in [0, classes), or `ignore_index`.
        bias: `[classes]`, or None; not with margins.
        sample_weight: `[...]` factors of the losses, without a gradient; None for 1.
        reduction: "mean": sum of the losses divided by the number of labels that are
            not ignored; "sum"; "none": the losses, `[...]`.
        ignore_index: label of examples whose loss is 0.
        label_smoothing: share of the target spread evenly over all classes, in [0, 1).
        margins: a `MarginLoss` without a state, which computes cosines, such as
            `plsc_tf.ARCFACE`; None for plain logits.
        scale: factor of the cosines; used with margins.
        logits_mb: maximum MB of logits that exist at a time, unless 32 examples have
            more. More is faster, as the weights are read less often.

    Returns:
        the loss, or losses, of Keras's float type.

    Raises:
        ValueError: a shape, type or option is wrong.
        tf.errors.InvalidArgumentError: a label is out of range, or in a `tf.function`,
            a shape is wrong. XLA checks neither.
    """
    floatx = keras.config.floatx()
    x, weight, labels = map(tf.convert_to_tensor, (x, weight, labels))
    tensors, examples = {"x": x, "weight": weight}, {"labels": labels}
    if bias is not None:
        tensors["bias"] = tf.convert_to_tensor(bias)
    if sample_weight is not None:
        examples["sample_weight"] = tf.stop_gradient(tf.cast(sample_weight, floatx))
    margins = SOFTMAX if margins is None else margins
    require_one_of(REDUCTIONS, reduction=reduction)
    _check(tensors, examples, margins)
    rule = "x [..., features], labels and sample_weight [...] must have the same [...]"
    sizes = map(tf.shape, examples.values())
    checks = [tf.debugging.assert_equal(n, tf.shape(x)[:-1], rule) for n in sizes]
    with tf.control_dependencies(checks):
        labels = tf.identity(tf.cast(labels, tf.int64))
    counted = labels != ignore_index
    valid = (labels >= 0) & (labels < weight.shape[0])
    rule = f"Labels must be in [0, {weight.shape[0]}) or ignore_index={ignore_index}."
    received = "Received labels between", tf.reduce_min(labels), tf.reduce_max(labels)
    tf.debugging.Assert(tf.reduce_all(valid | ~counted), [rule, *received])
    factors = tf.cast(counted, floatx)
    divisor = tf.reduce_sum(factors)
    factors *= examples.get("sample_weight", 1)
    if reduction == "mean":
        factors = tf.math.divide_no_nan(factors, divisor)
    factors = tf.reshape(factors, [-1])
    rows = tf.reshape(tf.where(counted, labels, 0), [-1])
    options = {"loss": margins, "scale": scale, "logits_mb": logits_mb}
    options |= {"label_smoothing": label_smoothing, "shape": tuple(weight.shape)}
    compute = functools.partial(sweep, private_apis.is_traced_for_xla(), **options)
    watched = tuple(k for k, v in tensors.items() if private_apis.is_watched(v))

    @tf.custom_gradient
    def objective(*arguments):
        given = dict(zip(tensors, map(tf.stop_gradient, arguments), strict=True))
        early = () if reduction == "none" else watched
        losses, found = tf.nest.map_structure(
            tf.stop_gradient, compute(wanted=early)(given, rows, factors)
        )
        value = losses * factors

        def gradient(upstream):
            if early:
                gradients = {k: _scaled(v, upstream) for k, v in found.items()}
            else:
                wanted = watched or tuple(tensors)
                again = factors * tf.reshape(tf.cast(upstream, floatx), [-1])
                gradients = compute(wanted=wanted)(given, rows, again)[1]
            return [_like(gradients.get(name), given[name]) for name in given]

        if reduction == "none":
            return tf.reshape(value, tf.shape(labels)), gradient
        return tf.reduce_sum(value), gradient

    return objective(*tensors.values())


@functools.lru_cache(maxsize=64)
def sweep(
    in_xla: bool, *, shape: tuple[int, int], wanted: tuple[str, ...], **options: Any
) -> Callable:
    """Returns a function that computes losses and the `wanted` gradients.

    The function takes a dict of the tensors `x`, `weight` and maybe `bias`, int64
    `[examples]` labels and `[examples]` factors of the losses in the objective. It
    returns (`[examples]` losses without the factors, dict of the objective's gradients
    with respect to `wanted`).

    Args:
        in_xla: whether the function is called in one that XLA compiles.
        shape: that of the weight.
        wanted: names of tensors.
        **options: those of `TensorHead`, but for the dtype.
    """
    classes, features = shape

    def run(given, labels, factors):
        floatx = keras.config.floatx()
        x, weight, bias = given["x"], given["weight"], given.get("bias")
        x = tf.reshape(x, [-1, features])
        weight = tf.cast(weight, floatx)
        if not options["loss"].normalized:
            bias = tf.cast(tf.zeros([classes]) if bias is None else bias, floatx)
        dtype = "float32" if x.dtype == floatx else x.dtype.name
        head = TensorHead(weight, bias, dtype=dtype, **options)
        count = x.shape[0] or tf.shape(x)[0]
        block, shapes = head.block(count), {"losses": [count]}
        shapes |= {"x": [count, features]} if wanted else {}
        if {"weight", "bias"} & set(wanted):
            shapes |= {k: v.tensor.shape for k, v in head.arrays().items()}
        # Unlike zeros, these are never a constant, which `add_rows` must not change.
        empty = functools.partial(tf.raw_ops.Empty, dtype=floatx, init=True)
        sums = {name: empty(shape=shape) for name, shape in shapes.items()}

        def add_block(start, sums):
            sums = dict(sums)
            # The last block repeats examples of the one before, which count 0 there.
            first = tf.minimum(start, count - block)
            index = first + tf.range(block)
            real, zero = index >= start, tf.zeros([], floatx)
            step = head.loss_and_gradients(
                tf.cast(tf.slice(x, [first, 0], [block, features]), floatx),
                tf.gather(labels, index),
                tf.where(real, tf.gather(factors, index), zero),
                gradients=bool(wanted),
            )
            found = {"losses": tf.where(real, step.losses, zero)}
            if wanted:
                found["x"] = step.embedding_gradients
            for name, value in found.items():
                sums[name] = add_rows(sums[name], index, value, in_xla)
            if "weight" in sums:
                head.add_weight_gradients(sums, step.pending, in_xla)
            return start + block, sums

        _, sums = tf.while_loop(
            lambda start, _: start < count, add_block, (0, sums), parallel_iterations=1
        )
        return sums["losses"], {k: sums[k] for k in wanted}

    return tf.function(run, autograph=False, reduce_retracing=True)


def add_rows(total, rows, values, in_xla):
    """Adds values to different rows of a sum, in the memory of the sum."""
    if in_xla:  # which lacks InplaceAdd, but does the same
        return tf.tensor_scatter_nd_add(total, rows[:, None], values)
    return tf.raw_ops.InplaceAdd(x=total, i=rows, v=values)


def _check(tensors, examples, margins):
    """Raises ValueError if shapes, types or the margins don't fit."""
    x, weight, floatx = tensors["x"], tensors["weight"], keras.config.floatx()
    classes, features = weight.shape if weight.shape.rank == 2 else (None, None)  # noqa: PLR2004
    shapes = {k: v.shape for k, v in (tensors | examples).items()}
    rule = "Expected x [..., features], weight [classes, features], bias [classes], "
    fits = classes and features and x.shape.rank and x.shape[-1] == features
    fits = fits and all(shapes[k].is_compatible_with(x.shape[:-1]) for k in examples)
    fits = fits and shapes.get("bias", (classes,)) == (classes,)
    rule += "labels and sample_weight [...], with known classes and features"
    require(fits, rule, **shapes)
    types = {k: v.dtype.name for k, v in (tensors | examples).items()}
    names = [floatx, *(name for name in DTYPES if name != "float32")]
    rule = f"x must be {' or '.join(names)}, weight and bias floats, labels integers"
    fits = types["x"] in names and examples["labels"].dtype.is_integer
    require(fits and all(v.dtype.is_floating for v in tensors.values()), rule, **types)
    rule = "margins must be a plsc_tf.MarginLoss without a state, like plsc_tf.ARCFACE"
    fits = isinstance(margins, MarginLoss) and not margins.initial_state()
    require(fits, rule, margins=margins)
    rule = "Margins work on cosines, which have no bias"
    require(not (margins.normalized and "bias" in tensors), rule, margins=margins)


def _scaled(gradient, upstream):
    """Multiplies a gradient by a scalar, without a copy where this changes nothing."""
    if tf.executing_eagerly() and upstream == 1:
        return gradient
    return gradient * tf.cast(upstream, gradient.dtype)


def _like(gradient, argument):
    """Returns a gradient in its argument's type and shape, as a constant; or None."""
    if gradient is None:
        return None
    gradient = tf.stop_gradient(tf.cast(gradient, argument.dtype))
    return tf.reshape(gradient, tf.shape(argument))
