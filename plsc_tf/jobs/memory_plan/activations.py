"""Computes memory and products of a backbone's two passes from their graph."""

import itertools
import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from plsc_tf.training.classifier import Classifier

# The output of these operations shares the memory of their input.
ALIASES = set(
    "ExpandDims Identity IdentityN PreventGradient Reshape Squeeze StopGradient".split()
)
# These operations allocate no memory: weights, arguments, small constants.
FREE = {"Const", "Placeholder", "ReadVariableOp", "VarHandleOp"}
# These operations read only the shape of their input, which may already be freed.
SHAPES = {"Rank", "Shape", "ShapeN", "Size"}


def trace(
    model: Classifier,
    batch: int,
    forward: Callable | None = None,
    compiled: bool = False,
) -> tuple[int, list[tf.Operation]]:
    """Computes the memory of one forward and backward pass without running it.

    Args:
        model: a `Classifier`.
        batch: number of images per pass on one replica.
        forward: function to use instead of `model.forward`.
        compiled: whether XLA compiles both passes.

    Returns:
        (peak bytes, without weights and, unless compiled, their gradients; the nodes of
        the graph).
    """
    shape = [batch, *model.image_size, model.backbone.input_shape[3]]
    weight_gradients, first_pass = [], []

    @tf.function(autograph=False)
    def both_passes(images, upstream, labels, shares):
        with tf.GradientTape() as tape:
            embeddings, _, extra = (forward or model.forward)(images, labels, shares)
            outputs = [embeddings] if extra is None else [embeddings, extra]
        first_pass.extend(embeddings.graph.get_operations())
        above = [tf.cast(upstream, outputs[0].dtype), *map(tf.ones_like, outputs[1:])]
        gradients = tape.gradient(outputs, model.trained_network_variables(), above)
        weight_gradients.extend(g for g in gradients if isinstance(g, tf.Tensor))
        return gradients

    graph = both_passes.get_concrete_function(
        tf.TensorSpec(shape, tf.uint8),
        tf.TensorSpec([batch, model.embedding_size], tf.float32),
        tf.TensorSpec([batch], tf.int64),
        tf.TensorSpec([batch], tf.float32),
    ).graph
    operations = graph.get_operations()
    if compiled:
        return peak(operations, forward=len(first_pass)), operations
    return peak(operations, weight_gradients), operations


def peak(
    operations: list[tf.Operation], results: Sequence[tf.Tensor] = (), forward: int = 0
) -> int:
    """Computes the peak memory of operations that run one after another, in bytes.

    A tensor exists from the operation that creates it to the last one that reads it.
    Operations that overwrite their input are not modeled: they hardly change the peak,
    which lies between the forward and the backward pass. Tensors of unknown size are
    not counted.

    Args:
        operations: operations of a graph, in the order in which they run.
        results: tensors that are not counted.
        forward: number of operations of the forward pass if XLA compiles both passes:
            the second program holds all tensors that it reads from the first one until
            it ends.
    """
    roots: dict = {}  # alias -> the tensor whose memory it shares
    first, last = {}, {}
    for index, operation in enumerate(operations):
        read = [roots.get(t.ref(), t.ref()) for t in operation.inputs]
        outputs = [t.ref() for t in operation.outputs]
        if operation.type in ALIASES:
            roots |= zip(outputs, read, strict=False)
        elif operation.type not in FREE:
            first |= dict.fromkeys(outputs, index)
            last |= dict.fromkeys(outputs, index)
        if operation.type not in SHAPES:
            last |= dict.fromkeys(read, index)
    uncounted = {roots.get(t.ref(), t.ref()) for t in results}
    changes = [0] * (len(operations) + 1)
    for tensor in first.keys() - uncounted:
        size = _bytes(tensor.deref())
        changes[first[tensor]] += size
        handed_on = first[tensor] < forward <= last[tensor]
        changes[len(operations) if handed_on else last[tensor] + 1] -= size
    return max(itertools.accumulate(changes))


def kernels(operations: Sequence[tf.Operation]) -> list[tuple[int, int, str]]:
    """Lists the convolutions and matrix products among the operations.

    Returns:
        [(floating-point operations, bytes of operands and result, type of the result)].
    """
    found = []
    for one in operations:
        if flops := _flops(one):
            moved = sum(map(_bytes, (*one.inputs, *one.outputs)))
            found.append((flops, moved, one.outputs[0].dtype.name))
    return found


def _flops(operation):
    """Returns 2 for each multiplication and addition; 0 for elementwise operations."""
    kind, tensors = operation.type, [*operation.inputs, *operation.outputs]
    if kind.endswith("BackpropInput") and not tensors[-1].consumers():
        return 0  # the gradient of the images, which TensorFlow does not compute
    if "Conv2" in kind:
        # Tensor 2 is the output or its gradient. Its numbers are sums over the kernel.
        kernel = tensors[3 if kind.endswith("Filter") else 1].shape
        terms = math.prod(kernel[: 2 if kind.startswith("Depthwise") else 3])
        return 2 * terms * (tensors[2].shape.num_elements() or 0)
    if "MatMul" not in kind:
        return 0
    name = "transpose_a" if kind == "MatMul" else "adj_x"
    terms = tensors[0].shape[-2 if operation.get_attr(name) else -1]
    return 2 * (terms or 0) * (tensors[-1].shape.num_elements() or 0)


def _bytes(tensor):
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return 0
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size
