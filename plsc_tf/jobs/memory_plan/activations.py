"""Computes the memory of a backbone's forward and backward pass from their graph."""

import itertools
from collections.abc import Sequence

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


def trace(model: Classifier, batch: int) -> tuple[int, int]:
    """Computes the memory of one forward and backward pass without running it.

    Args:
        model: a `Classifier`.
        batch: number of images per pass on one replica.

    Returns:
        (peak bytes, without weights and their gradients; number of nodes in the graph,
        each of which takes some memory on the host).
    """
    shape = [batch, *model.image_size, model.backbone.input_shape[3]]
    weight_gradients = []

    @tf.function(autograph=False)
    def both_passes(images, upstream, labels, shares):
        with tf.GradientTape() as tape:
            if model.auxiliary is None:
                outputs = [model(images, training=True)]
            else:
                outputs = model.auxiliary(model.normalize(images), labels, shares)
        ones = (tf.ones_like(loss) for loss in outputs[1:])
        gradients = tape.gradient(
            outputs,
            model.trained_network_variables(),
            output_gradients=[tf.cast(upstream, outputs[0].dtype), *ones],
        )
        weight_gradients.extend(g for g in gradients if isinstance(g, tf.Tensor))
        return gradients

    graph = both_passes.get_concrete_function(
        tf.TensorSpec(shape, tf.uint8),
        tf.TensorSpec([batch, model.embedding_size], tf.float32),
        tf.TensorSpec([batch], tf.int64),
        tf.TensorSpec([batch], tf.float32),
    ).graph
    operations = graph.get_operations()
    return peak(operations, weight_gradients), len(operations)


def peak(operations: list[tf.Operation], results: Sequence[tf.Tensor] = ()) -> int:
    """Computes the peak memory of operations that run one after another, in bytes.

    A tensor exists from the operation that creates it to the last one that reads it.
    Operations that overwrite their input are not modeled: they hardly change the peak,
    which lies between the forward and the backward pass. Tensors of unknown size are
    not counted.

    Args:
        operations: operations of a graph, in the order in which they run.
        results: tensors that are not counted.
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
        changes[last[tensor] + 1] -= size
    return max(itertools.accumulate(changes))


def _bytes(tensor):
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return 0
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size
