"""Compiles a function and its gradients as two passes with little between them.

TensorFlow's own split hands on each tensor that a gradient function mentions, even if
nothing reads it: 1,531 tensors for an iresnet50. XLA copies or allocates each of them,
and on an H200 the GPU waited for the host to do so.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from plsc_tf.graphs import with_xla


class TwoPasses:
    """A differentiable function whose forward and backward pass XLA compiles.

    The backward pass gets what the forward pass computed from the batch. What depends
    on weights only, such as a cast, it computes again.

    Args:
        function: function of tensors, without side effects. It returns two nested
            structures of tensors and None: results with and without gradients.
        tensors: example arguments, which fix the shapes and types.
        num_weights: number of leading arguments that are not part of the batch.
    """

    def __init__(
        self, function: Callable, tensors: Sequence[tf.Tensor], num_weights: int
    ) -> None:
        specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors]
        trace = tf.function(functools.partial(self._trace, function), autograph=False)
        with tf.device(None):
            traced = trace.get_concrete_function(*specs)
        self._captured = traced.captured_inputs
        inputs, forward = traced.graph.inputs, _operations(self._results)
        varying = {t.op for t in inputs[num_weights : len(specs)]}
        for operation in forward.values():
            of_batch = any(t.op in varying for t in operation.inputs)
            if of_batch or operation.op_def.is_stateful:
                varying.add(operation)
        backward = _operations(self._gradients)
        read = {
            t.ref(): t
            for name in backward.keys() - forward.keys()
            for t in backward[name].inputs
            if t.op in varying
        }
        known = dict.fromkeys(t.ref() for t in (*inputs, *self._results))
        kept = [t for ref, t in read.items() if ref not in known]
        self._known = [*known, *(t.ref() for t in kept)]
        again = _operations(self._gradients, beyond=read)
        read |= {t.ref(): t for t in inputs if t.op.name in again}
        self._read = list(read)
        self._forward = _part(inputs, [*self._results, *kept])
        self._backward = _part([*read.values(), *self._upstream], self._gradients)

    def _trace(self, function, *tensors):
        """Computes the results, and the gradients of some of them."""
        with tf.GradientTape() as tape:
            tape.watch([t for t in tensors if t.dtype.is_floating])
            self._structure = function(*tensors)
            flat = map(tf.nest.flatten, self._structure)
            ends, others = ([tf.identity(t) for t in x if t is not None] for x in flat)
        self._results = [*ends, *others]
        self._upstream = [tf.compat.v1.placeholder(t.dtype, t.shape) for t in ends]
        gradients = tape.gradient(ends, tensors, self._upstream)
        self._has_gradient = [one is not None for one in gradients]
        self._gradients = [tf.identity(one) for one in gradients if one is not None]
        return self._results, self._gradients

    def __call__(self, *tensors: tf.Tensor) -> Any:
        """Returns what the function returns."""
        results = iter(tf.custom_gradient(self._passes)(*tensors))
        return tf.nest.map_structure(
            lambda t: None if t is None else next(results), self._structure
        )

    def _passes(self, *tensors):
        inputs = *tensors, *self._captured
        outcome = self._forward(*inputs)

        def backward(*upstream):
            known = dict(zip(self._known, [*inputs, *outcome], strict=True))
            read = [known[ref] for ref in self._read]
            gradients = iter(self._backward(*read, *upstream[: len(self._upstream)]))
            return [next(gradients) if one else None for one in self._has_gradient]

        return outcome[: len(self._results)], backward


def _operations(tensors: Iterable[tf.Tensor], beyond: Any = ()) -> dict:
    """Returns the operations that compute tensors, in their order.

    Args:
        tensors: tensors of a graph.
        beyond: references of tensors that are known, so that nothing computes them.

    Returns:
        `{name: operation}`.
    """
    found: set[tf.Operation] = set()
    waiting = [t.op for t in tensors]
    while waiting:
        if (operation := waiting.pop()) not in found:
            found.add(operation)
            waiting += [t.op for t in operation.inputs if t.ref() not in beyond]
    graph = next(iter(found)).graph
    return {one.name: one for one in graph.get_operations() if one in found}


def _part(given: Sequence[tf.Tensor], wanted: Sequence[tf.Tensor]) -> Callable:
    """Compiles the part of a graph that computes some tensors from others."""
    operations = _operations(wanted, beyond={t.ref() for t in given})
    names = {t.name: f"given_{i}" for i, t in enumerate(given)}
    used: set[str] = set()
    definition = wanted[0].graph.as_graph_def()
    nodes = [node for node in definition.node if node.name in operations]
    del definition.node[:]
    for node in nodes:
        inputs = [name for name in node.input if name[0] != "^"]
        del node.input[:]
        node.attr.pop("_class", None)  # may name an operation of the other part
        for name in inputs:
            node.input.append(names.get(name if ":" in name else f"{name}:0", name))
        used.update(node.input)
        definition.node.append(node)

    @with_xla
    def run(*values):
        pairs = zip(names.values(), values, strict=True)
        return tf.graph_util.import_graph_def(
            definition,
            input_map={name: value for name, value in pairs if name in used},
            return_elements=[t.name for t in wanted],
            name="",
        )

    return run
