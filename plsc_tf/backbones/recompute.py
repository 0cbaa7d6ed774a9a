"""Runs networks in blocks whose activations the backward pass computes again."""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.backbones.stateless import with_values
from plsc_tf.requirements import require

# Ratio between one limit for the size of a block and the next one to try.
_FINENESS = 1.1


class InBlocks:
    """A network in training mode whose backward pass runs each block again.

    The blocks are chosen to lower the peak memory of a backward pass that keeps the
    inputs of all blocks and computes the activations of one block at a time. A block
    may have several inputs: within a residual unit, the shortcut's tensor is one.

    Args:
        network: a functional model with one input.
        substitute: see `private_apis.Substituted`.
        compiled: whether XLA compiles the passes.

    Raises:
        ValueError: the network has only one layer.
    """

    def __init__(self, network: keras.Model, substitute: Callable, compiled: bool):
        self._network, self._compiled = network, compiled
        self._blocks = [
            (*ends, private_apis.Substituted(*ends, substitute))
            for ends in _blocks(network)
        ]

    def __call__(self, x: tf.Tensor) -> Any:
        """Returns the network's outputs; call it in a `keras.StatelessScope`."""
        known = {id(self._network.inputs[0]): x}
        for inputs, outputs, block in self._blocks:
            found = _run(block, [known[id(t)] for t in inputs], self._compiled)
            known |= zip(map(id, outputs), found, strict=True)
        results = [known[id(t)] for t in self._network.outputs]
        return results[0] if len(results) == 1 else results


def _blocks(network):
    """Returns (inputs, outputs) of each block, symbolic tensors of the network."""
    calls = private_apis.calls(network)
    rule = f"recompute=blocks cannot cut '{network.name}', which calls only one layer"
    require(len(calls) != 1, rule, "Train it with recompute=none")
    last = {id(t): end for end, (read, _) in enumerate(calls, 1) for t in read}
    last |= {id(t): len(calls) + 1 for t in network.outputs}
    # Before each call and at the end: the tensors that are needed later, each with the
    # number of calls after which it exists.
    needed = [[(0, t) for t in network.inputs]]
    for end, (_, made) in enumerate(calls, 1):
        tensors = *needed[-1], *((end, t) for t in made)
        needed.append([(n, t) for n, t in tensors if last.get(id(t), 0) > end])
    found = []
    sizes = [sum(map(_size, made)) for _, made in calls]
    for start, end in itertools.pairwise(_bounds(needed, sizes)):
        read = {id(t) for inputs, _ in calls[start:end] for t in inputs}
        inputs = [t for _, t in needed[start] if id(t) in read]
        found.append((inputs, [t for made, t in needed[end] if made > start]))
    return found


def _bounds(needed, sizes):
    """Returns the numbers of the calls at which blocks begin, and of calls in total.

    Args:
        needed: see `_blocks`.
        sizes: how many numbers each call returns per example.
    """
    totals = [0, *itertools.accumulate(sizes)]
    # Blocks must not begin with a tensor that has no gradient.
    kept = [
        [(made, _size(t) if "float" in t.dtype else math.inf) for made, t in tensors]
        for tensors in needed
    ]
    best, limit = (math.inf, [0]), max(sizes)
    while limit < best[0]:
        # The least memory for the inputs of all blocks up to each call, and where they
        # begin, if no block exceeds the limit.
        least = [(0, [0])]
        for end, tensors in enumerate(kept[1:], 1):
            memory, start = min(
                (least[i][0] + sum(size for made, size in tensors if made > i), i)
                for i in range(bisect_left(totals, totals[end] - limit), end)
            )
            least.append((memory, [*least[start][1], end]))
        memory, bounds = least[-1]
        best = min(best, (memory + limit, bounds))
        limit *= _FINENESS
    return best[1]


def _size(tensor):
    """Returns how many numbers a symbolic tensor has per example."""
    return math.prod(size or 1 for size in tensor.shape[1:])


def _run(block, inputs, compiled):
    """Runs a block; the backward pass runs it again.

    Both runs begin with the same states, so that dropout draws the same masks. The
    states change once.
    """
    variables, count = block.variables, len(inputs)
    changed: list = []

    def once(tensors):
        outputs, states, losses = with_values(
            lambda: block(tensors[:count], training=True), variables, tensors[count:]
        )
        both = zip(variables, states, strict=True)
        pairs = [(variable, new) for variable, new in both if new is not None]
        changed[:] = [variable for variable, _ in pairs]
        return tf.nest.flatten(outputs), losses, [state for _, state in pairs]

    @tf.custom_gradient
    def twice(*tensors):
        results = once(tensors)

        def backward(*upstream):
            upstream = upstream[: len(results[0]) + len(results[1])]
            # Without this, the second run could be merged with the first one, or begin
            # before its result is needed.
            with tf.control_dependencies(upstream):
                again = [tf.identity(x) for x in tensors[:count]]
            if compiled:  # XLA ignores control dependencies
                both = private_apis.barrier([*again, *upstream])
                again, upstream = both[:count], both[count:]
            again += tensors[count:]
            floats = [t for t in again if t.dtype.is_floating]
            with tf.GradientTape() as tape:
                tape.watch(floats)
                outputs, losses, _ = once(again)
            gradients = iter(tape.gradient([*outputs, *losses], floats, list(upstream)))
            return [next(gradients) if t.dtype.is_floating else None for t in again]

        return results, backward

    values = [tf.convert_to_tensor(variable.value) for variable in variables]
    outputs, losses, states = twice(*inputs, *values)
    for variable, state in zip(changed, states, strict=True):
        variable.assign(state)
    keras.layers.Layer().add_loss(losses)  # to the scope of the caller
    return outputs
