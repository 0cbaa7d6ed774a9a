"""Which weights are reduced, and where each of them stands in one long vector."""

import dataclasses
import io

import h5py
import numpy as np
import tensorflow as tf

from plsc_tf.checkpoints.writer import Content


@dataclasses.dataclass(frozen=True)
class Piece:
    """A weight of the vector.

    Attributes:
        name: of the weight.
        shape: of it.
        start: its first place in the vector.
        dataset: its place in the weights file of a checkpoint; empty for class weights.
        rows: name of the array of a checkpoint that it is, such as "weight"; empty for
            the backbone's.
    """

    name: str
    shape: tuple
    start: int
    dataset: str = ""
    rows: str = ""

    @property
    def size(self):
        """How many numbers it has."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def stop(self):
        """The place after its last one."""
        return self.start + self.size


@dataclasses.dataclass(frozen=True)
class Layout:
    """The trained weights in the order of the network, then the head's.

    Keras's names count layers over the whole process, so an order by names would not be
    the same in another one. That of the network is, and checkpoints keep it.

    Attributes:
        pieces: list of `Piece`.
        weights: `[(name, shape)]` of all weights of the backbone, to compare with.
        variables: the mirrored `keras.Variable`s among them, in that order.
    """

    pieces: tuple
    weights: tuple
    variables: tuple

    @property
    def with_head(self):
        """Whether the class weights are among them."""
        return bool(self.pieces[-1].rows)

    @property
    def size(self):
        """n, the numbers of the vector."""
        return self.pieces[-1].stop

    @property
    def backbone_size(self):
        """How many of them are the backbone's."""
        return sum(piece.size for piece in self.pieces if not piece.rows)

    def describe(self):
        """The description of a projection: `[[name, shape]]`.

        Names are those of the weights file, which another process uses too.
        """
        return [[p.dataset or p.name, list(p.shape)] for p in self.pieces]


def of_model(model, scope):
    """The `Layout` of a model.

    Args:
        model: the `Classifier`.
        scope: "backbone", or "all" with the class weights.
    """
    network = model.backbone
    numbers = {id(weight): i for i, weight in enumerate(network.weights)}
    places = _datasets(network)
    pieces, start = [], 0
    variables = list(network.trainable_variables)
    for variable in variables:
        i = numbers[id(variable)]
        pieces.append(Piece(variable.path, tuple(variable.shape), start, places[i]))
        start = pieces[-1].stop
    if scope == "all":
        for name, rows in model.head.arrays().items():
            shape = tuple(rows.shape)
            pieces.append(Piece(f"head/{name}", shape, start, rows=name))
            start = pieces[-1].stop
        variables += [] if model.head.sharded else model.head.variables_replicated
    weights = tuple((w.path, tuple(w.shape)) for w in network.weights)
    return Layout(tuple(pieces), weights, tuple(variables))


def _datasets(network):
    """Where Keras's weights file keeps each weight: `{number: name}`.

    A file is written in which every weight is filled with its own number.
    """
    numbered = [
        (weight, tf.fill(weight.shape, tf.cast(i, weight.dtype)))
        for i, weight in enumerate(network.weights)
    ]
    others = [(v, v.value) for v in network.variables]
    known = {id(weight) for weight, _ in numbered}
    values = numbered + [pair for pair in others if id(pair[0]) not in known]
    content = Content("weights", {}, network, values, {}, {})
    places = {}

    def look(name, item):
        if isinstance(item, h5py.Dataset) and item.size:
            places[int(np.ravel(item[(0,) * item.ndim])[0])] = name

    with h5py.File(io.BytesIO(content.backbone_file())) as file:
        file.visititems(look)
    return places
