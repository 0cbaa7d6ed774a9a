"""What a backbone's forward and backward pass hold in memory, from their graph."""

import collections
import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from plsc_tf.training.classifier import Classifier

# Their output is their input's memory.
ALIASES = {
    "ExpandDims",
    "Identity",
    "IdentityN",
    "PreventGradient",
    "Reshape",
    "Squeeze",
    "StopGradient",
}
# They hold no memory of their own: weights, what the caller holds, small constants.
FREE = {"Const", "Placeholder", "ReadVariableOp", "VarHandleOp"}
# They look at the shape of their input, which need not exist any more.
SHAPES = {"Rank", "Shape", "ShapeN", "Size"}


@dataclasses.dataclass(frozen=True)
class Activations:
    """Memory of one forward and backward pass.

    Attributes:
        bytes: most that exists at a time, except weights and their gradients.
        operations: nodes of the graph, each of which costs some memory on the host.
        unknown: tensors whose size the graph does not know; they are not counted.
    """

    bytes: int
    operations: int
    unknown: int


def trace(model: Classifier, batch: int) -> Activations:
    """Computes the `Activations` of a model without running it.

    Args:
        model: a `Classifier`.
        batch: images at a time, on one replica.
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
        gradients = tape.gradient(
            outputs,
            model.trained_network_variables(),
            output_gradients=[
                tf.cast(upstream, outputs[0].dtype),
                *(tf.ones_like(loss) for loss in outputs[1:]),
            ],
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
    unknown = sum(
        tensor.shape.num_elements() is None
        for operation in operations
        for tensor in operation.outputs
    )
    return Activations(peak(operations, weight_gradients), len(operations), unknown)


def peak(operations: list[tf.Operation], results: Sequence[tf.Tensor] = ()) -> int:
    """Most bytes that exist at a time when operations run one after the other.

    A tensor exists from the operation that makes it to the last one that reads it.
    That an operation may write over its input is left out: it changes little where
    the memory is fullest, at the turn from the forward to the backward pass.

    Args:
        operations: of a graph, in the order in which they run.
        results: tensors that are not counted.
    """
    memory = _Memory(operations)
    readers = collections.Counter(t for op in operations for t in memory.read(op))
    uncounted = {memory.of(tensor) for tensor in results}
    sizes, now, most = {}, 0, 0
    for operation in operations:
        if operation.type in FREE:
            continue
        made, read = memory.made(operation), memory.read(operation)
        for tensor in made:
            sizes[tensor] = 0 if tensor in uncounted else _bytes(tensor.deref())
            now += sizes[tensor]
            most = max(most, now)
        readers.subtract(read)
        for tensor in {*made, *read}:
            if readers[tensor] == 0:
                now -= sizes.pop(tensor, 0)
    return most


class _Memory:
    """Which tensor's memory each tensor is in."""

    def __init__(self, operations):
        self._shared = {}
        for operation in operations:
            if operation.type in ALIASES:
                pairs = zip(operation.inputs, operation.outputs, strict=False)
                for source, alias in pairs:
                    self._shared[alias.ref()] = self.of(source)

    def of(self, tensor):
        return self._shared.get(tensor.ref(), tensor.ref())

    def made(self, operation):
        if operation.type in ALIASES:
            return []
        return [tensor.ref() for tensor in operation.outputs]

    def read(self, operation):
        if operation.type in SHAPES:
            return []
        return [self.of(tensor) for tensor in operation.inputs]


def _bytes(tensor):
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return 0
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size
