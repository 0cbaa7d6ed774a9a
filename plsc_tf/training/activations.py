"""What a backbone's forward and backward pass hold in memory, from their graph."""

import collections
import dataclasses

import tensorflow as tf

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
        bytes: most that exists at a time, but for weights and their gradients.
        operations: nodes of the graph, each of which costs some memory on the host.
        unknown: tensors whose size the graph does not tell; they are not counted.
    """

    bytes: int
    operations: int
    unknown: int


def trace(model, batch):
    """Finds the `Activations` of a model without running it.

    Args:
        model: a `Classifier`.
        batch: images at a time, on one replica.
    """
    shape = [batch, *model.image_size, model.backbone.input_shape[3]]
    results = []

    @tf.function(autograph=False)
    def both_passes(images, upstream):
        with tf.GradientTape() as tape:
            embeddings = model(images, training=True)
        gradients = tape.gradient(
            embeddings,
            model.backbone.trainable_variables,
            output_gradients=tf.cast(upstream, embeddings.dtype),
        )
        results.extend(g for g in gradients if isinstance(g, tf.Tensor))
        return gradients

    graph = both_passes.get_concrete_function(
        tf.TensorSpec(shape, tf.uint8),
        tf.TensorSpec([batch, model.embedding_size], tf.float32),
    ).graph
    operations = graph.get_operations()
    unknown = sum(
        tensor.shape.num_elements() is None
        for operation in operations
        for tensor in operation.outputs
    )
    return Activations(peak(operations, results), len(operations), unknown)


def peak(operations, results=()):
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
        made = memory.made(operation) - uncounted
        for tensor in made:
            sizes[tensor] = _bytes(tensor.deref())
            now += sizes[tensor]
        most = max(most, now)
        read = memory.read(operation)
        readers.subtract(read)
        for tensor in made.union(read):
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
                for given, made in pairs:
                    self._shared[made.ref()] = self.of(given)

    def of(self, tensor):
        return self._shared.get(tensor.ref(), tensor.ref())

    def made(self, operation):
        if operation.type in ALIASES:
            return set()
        return {tensor.ref() for tensor in operation.outputs}

    def read(self, operation):
        if operation.type in SHAPES:
            return []
        return [self.of(tensor) for tensor in operation.inputs]


def _bytes(tensor):
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return 0
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size
