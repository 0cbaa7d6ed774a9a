"""What a backbone's forward and backward pass hold in memory, from their graph."""

import collections
import dataclasses
import itertools

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
# Tensors with so small a share of a pass's memory are left out: most of them.
MINOR = 1e-4
# They look at the shape of their input, which need not exist any more.
SHAPES = {"Rank", "Shape", "ShapeN", "Size"}


@dataclasses.dataclass(frozen=True)
class Activations:
    """Memory of one forward and backward pass.

    Attributes:
        bytes: most that exists at a time, but for weights and their gradients.
        operations: nodes of the graph, each of which costs some memory on the host.
        unknown: tensors whose size the graph does not tell; they are not counted.
        forward: requests of the forward pass, tuples (number of a tensor, its bytes),
            where it is freed None for the bytes; without the smallest ones.
        backward: those of the backward pass.
        gradients: numbers of the tensors that are gradients of weights.
    """

    bytes: int
    operations: int
    unknown: int
    forward: tuple = ()
    backward: tuple = ()
    gradients: frozenset = frozenset()


def trace(model, batch):
    """Finds the `Activations` of a model without running it.

    Args:
        model: a `Classifier`.
        batch: images at a time, on one replica.
    """
    shape = [batch, *model.image_size, model.backbone.input_shape[3]]
    results, turn = [], []

    @tf.function(autograph=False)
    def both_passes(images, upstream, labels, shares):
        with tf.GradientTape() as tape:
            if model.auxiliary is None:
                found = [model(images, training=True)]
            else:
                found = model.auxiliary(model.normalize(images), labels, shares)
        turn.append(found[-1].op)
        gradients = tape.gradient(
            found,
            model.trained_network_variables(),
            output_gradients=[
                tf.cast(upstream, found[0].dtype),
                *(tf.ones_like(loss) for loss in found[1:]),
            ],
        )
        results.extend(g for g in gradients if isinstance(g, tf.Tensor))
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
    found = list(_requests(operations, results))
    last, most = operations.index(turn[0]), _most(found)
    minor = {
        key
        for _, counted, (key, size) in found
        if counted and size is not None and size < MINOR * most
    }
    found = [one for one in found if one[2][0] not in minor]
    return Activations(
        bytes=most,
        operations=len(operations),
        unknown=unknown,
        forward=tuple(request for at, _, request in found if at <= last),
        backward=tuple(request for at, _, request in found if at > last),
        gradients=frozenset(key for _, counted, (key, _) in found if not counted),
    )


def peak(operations, results=()):
    """Most bytes that exist at a time when operations run one after the other.

    A tensor exists from the operation that makes it to the last one that reads it.
    That an operation may write over its input is left out: it changes little where
    the memory is fullest, at the turn from the forward to the backward pass.

    Args:
        operations: of a graph, in the order in which they run.
        results: tensors that are not counted.
    """
    return _most(_requests(operations, results))


def _most(requests):
    sizes, now, most = {}, 0, 0
    for _, counted, (key, size) in requests:
        if size is None:
            now -= sizes.pop(key, 0)
        elif counted:
            sizes[key] = size
            now += size
            most = max(most, now)
    return most


def _requests(operations, results):
    """What operations ask of the allocator, one after the other.

    Yields:
        (number of the operation, whether the tensor is none of the results,
        (number of the tensor, its bytes, None where it is freed)).
    """
    memory = _Memory(operations)
    readers = collections.Counter(t for op in operations for t in memory.read(op))
    kept = {memory.of(tensor) for tensor in results}
    numbers, counter = {}, itertools.count()
    for at, operation in enumerate(operations):
        if operation.type in FREE:
            continue
        made = memory.made(operation)
        for tensor in made:
            numbers[tensor] = next(counter)
            yield at, tensor not in kept, (numbers[tensor], _bytes(tensor.deref()))
        read = memory.read(operation)
        readers.subtract(read)
        # In the order of the graph: a set's would change from run to run.
        for tensor in dict.fromkeys([*made, *read]):
            if readers[tensor] == 0 and tensor in numbers and tensor not in kept:
                yield at, True, (numbers.pop(tensor), None)


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
