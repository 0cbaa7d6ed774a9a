"""Runs networks in blocks whose activations the backward pass computes again."""

import collections
import math
from typing import Any

import keras
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.backbones.stateless import with_values

# Ratio between one limit for the size of a block and the next one to try.
_FINENESS = 1.1


def cuts(network: keras.Model) -> list[keras.KerasTensor]:
    """Returns the tensors between the blocks of a network.

    A network can be cut at each tensor through which all paths from its input lead, for
    example after each residual block. Consecutive pieces are joined to a block if that
    lowers the peak memory of a backward pass that keeps the inputs of all blocks, and
    computes the activations of one block at a time.

    Args:
        network: a functional model with one input.

    Returns:
        Symbolic tensors of `network`, in order. The first block ends and the second one
        begins with the first of them, and so on.

    Raises:
        ValueError: there are no such tensors.
    """
    tensors, sizes = _pieces(network)
    if len(tensors) < 2:  # noqa: PLR2004
        raise ValueError(
            f"recompute=blocks must cut the network into blocks, but '{network.name}' "
            "has no layer through which all paths from its input lead. Train it with "
            "recompute=none."
        )
    inputs = [_size(network.inputs[0]), *map(_size, tensors[:-1])]

    def peak(ends):
        starts = [0, *ends[:-1]]
        blocks = zip(starts, ends, strict=True)
        kept = sum(inputs[start] for start in starts)
        return kept + max(sum(sizes[start:end]) for start, end in blocks)

    limits = [max(sizes)]
    while limits[-1] < sum(sizes):
        limits.append(limits[-1] * _FINENESS)
    ends = min((_joined(sizes, limit) for limit in limits), key=peak)
    return [tensors[end - 1] for end in ends[:-1]]


def _pieces(network):
    """Returns the tensors that can end a block, and the memory of what precedes each.

    If the network has several outputs, the last tensor is None.
    """
    calls = private_apis.calls(network)
    left = collections.Counter(id(x) for inputs, _ in calls for x in inputs)
    left.update(map(id, network.outputs))
    cuts, sizes, size = [], [], 0
    needed = {id(network.inputs[0])}
    for inputs, outputs in calls:
        size += sum(map(_size, outputs))
        left.subtract(map(id, inputs))
        needed = {x for x in (*needed, *map(id, outputs)) if left[x]}
        if len(needed) == 1:
            cuts += [x for x in outputs if id(x) in needed]
            sizes.append(size)
            size = 0
    return ([*cuts, None], [*sizes, size]) if size else (cuts, sizes)


def _size(tensor):
    """Returns how many numbers a symbolic tensor has per example."""
    return math.prod(size or 1 for size in tensor.shape[1:])


def _joined(sizes, limit):
    """Joins consecutive pieces up to this limit; returns the end of each block."""
    ends, total = [], math.inf
    for end, size in enumerate(sizes, start=1):
        if total + size > limit:
            ends.append(end)
            total = 0
        total += size
        ends[-1] = end
    return ends


def run(
    block: keras.Model, x: tf.Tensor, compiled: bool
) -> tuple[Any, list[tf.Tensor]]:
    """Runs a block in training mode; the backward pass runs it again.

    Both runs begin with the same states, so that dropout draws the same masks. The
    states change once.

    Args:
        block: a model, built with all of its weights.
        x: its input.
        compiled: whether XLA compiles the run.

    Returns:
        (the block's output, list of the losses that its layers add).
    """
    variables = block.variables
    changed: list = []

    def once(x, values):
        outputs, states, losses = with_values(
            lambda: block(x, training=True), variables, values
        )
        changed[:] = [
            v for v, s in zip(variables, states, strict=True) if s is not None
        ]
        return outputs, losses, [s for s in states if s is not None]

    @tf.custom_gradient
    def twice(x, *values):
        results = once(x, values)

        def backward(*upstream):
            upstream = upstream[: len(tf.nest.flatten(results[:2]))]
            # Without this, the second run could be merged with the first one, or begin
            # before its result is needed.
            with tf.control_dependencies(upstream):
                again = tf.identity(x)
            if compiled:  # XLA ignores control dependencies
                again, *upstream = private_apis.barrier([again, *upstream])
            floats = [v for v in values if v.dtype.is_floating]
            with tf.GradientTape() as tape:
                tape.watch([again, *floats])
                outputs, losses, _ = once(again, values)
            found = tape.gradient(
                tf.nest.flatten([outputs, losses]),
                [again, *floats],
                output_gradients=list(upstream),
            )
            of_values = iter(found[1:])
            return found[0], *(
                next(of_values) if v.dtype.is_floating else None for v in values
            )

        return results, backward

    values = [tf.convert_to_tensor(v.value) for v in variables]
    outputs, losses, states = twice(x, *values)
    for variable, state in zip(changed, states, strict=True):
        variable.assign(state)
    return outputs, losses
