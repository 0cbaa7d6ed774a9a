"""Maps another library's weights to Keras layers and reads its class weight shards."""

import functools
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import keras
import numpy as np

from plsc_tf.checkpoints.rows import Rows
from plsc_tf.requirements import require

# Maximum number of names that an error message lists.
LISTED = 6
# Maximum number of missing ranks that an error message counts.
MOST_MISSING = 10_000
# Maximum number of opened shards to keep, one for each writing thread.
LOADED = 2
# A residual network's layers and their names in arcface_torch, in the order in which
# PLSC creates (and therefore numbers) them; first the layers outside the blocks.
AROUND = {
    "stem_conv": "conv1",
    "stem_bn": "bn1",
    "stem_prelu": "prelu",
    "features_bn": "bn2",
    "embedding_dense": "fc",
    "embedding": "features",
}
BLOCK = {
    "bn1": "bn1",
    "conv1": "conv1",
    "bn2": "bn2",
    "prelu2": "prelu",
    "conv2": "conv2",
    "bn3": "bn3",
    "prelu3": None,
    "conv3": None,
    "bn4": None,
    "shortcut_conv": "downsample.0",
    "shortcut_bn": "downsample.1",
}
_IN_BLOCK = re.compile(r"stage(\d+)_block(\d+)_(.+)")


class Names(NamedTuple):
    """The suffixes that a library appends to a layer's name for the layer's arrays.

    Args:
        weight: suffix of kernels, batch normalization scales and PReLU slopes.
        bias: suffix of the biases of dense layers and batch normalization.
        mean: suffix of the moving mean.
        variance: suffix of the moving variance.
        dense_inputs_first: whether dense kernels have the shape `[inputs, outputs]`, as
            in Keras.
    """

    weight: str
    bias: str
    mean: str
    variance: str
    dense_inputs_first: bool


class Place(NamedTuple):
    """The assignment of another library's array to a Keras variable.

    Attributes:
        variable: the Keras variable.
        name: the array's name in the other library.
        shape: the array's shape in the other library.
        convert: function that converts the array to the variable's value.
    """

    variable: keras.Variable
    name: str
    shape: tuple[int, ...]
    convert: Callable[[np.ndarray], np.ndarray] = np.asarray


def order(backbone: keras.Model, *, scaled: bool) -> dict | None:
    """Returns `{layer name: (stage, block, name in the block)}` in PLSC's order.

    Args:
        backbone: the Keras model.
        scaled: whether the last batch normalization has a scale.

    Returns:
        a dict with all layers that have weights, `(0, 0, name)` for layers before and
        `(9, 0, name)` for layers after the blocks; None if `backbone` has a different
        architecture.
    """
    found = {}
    for layer in backbone.layers:
        block = _IN_BLOCK.fullmatch(layer.name)
        if block and block[3] in BLOCK:
            found[layer.name] = (int(block[1]), int(block[2]), block[3])
        elif layer.name in AROUND:
            found[layer.name] = (0 if "stem" in layer.name else 9, 0, layer.name)
        elif layer.weights:
            return None
    if not set(AROUND) <= set(found) or backbone.get_layer("embedding").scale != scaled:
        return None
    kinds = [*AROUND, *BLOCK]
    place = {name: (*at[:2], kinds.index(at[2])) for name, at in found.items()}
    return {name: found[name] for name in sorted(found, key=lambda name: place[name])}


def places(
    backbone: keras.Model, layer_names: Mapping[str, str], names: Names
) -> list[Place]:
    """Returns a `Place` for each of a network's weights.

    Args:
        backbone: the Keras model.
        layer_names: `{name of the Keras layer: its name in the other library}`.
        names: the other library's `Names`.
    """
    found = []
    for ours, theirs in layer_names.items():
        found += _of_layer(backbone, backbone.get_layer(ours), theirs, names)
    return found


def differences(found: Sequence[Place], arrays: Mapping[str, np.ndarray]) -> str:
    """Lists arrays that are missing, unknown or of a different shape, "" if none."""
    wanted = {place.name: list(place.shape) for place in found}
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    problems = {
        "missing": [name for name in wanted if name not in shapes],
        "not in that network": [name for name in shapes if name not in wanted],
        "of another shape": [
            f"{name} is {shapes[name]}, not {shape}"
            for name, shape in wanted.items()
            if shapes.get(name, shape) != shape
        ],
    }
    return "; ".join(f"{kind}: {listed(p)}" for kind, p in problems.items() if p)


def listed(names: Iterable[str]) -> str:
    """Returns a text with the first few names and, if there are more, their number."""
    names = list(names)
    text = ", ".join(names[:LISTED])
    return text if len(names) <= LISTED else f"{text}, … ({len(names)} in all)"


def _of_layer(backbone, layer, name, names):
    """Returns the `Place`s of one layer."""
    weight, bias = name + names.weight, name + names.bias
    if isinstance(layer, keras.layers.Conv2D):
        height, width, inputs, outputs = layer.kernel.shape
        shape = (outputs, inputs, height, width)
        return [Place(layer.kernel, weight, shape, lambda k: k.transpose(2, 3, 1, 0))]
    if isinstance(layer, keras.layers.PReLU):
        slopes = tuple(layer.alpha.shape)
        return [Place(layer.alpha, weight, slopes[-1:], lambda a: a.reshape(slopes))]
    if isinstance(layer, keras.layers.BatchNormalization):
        variables = {weight: layer.gamma} if layer.scale else {}
        variables[bias] = layer.beta
        variables[name + names.mean] = layer.moving_mean
        variables[name + names.variance] = layer.moving_variance
        return [Place(v, n, tuple(v.shape)) for n, v in variables.items()]
    # This is a dense layer over the flattened feature map. Keras flattens (height,
    # width, channels); the other libraries flatten (channels, height, width).
    features = tuple(backbone.get_layer("flatten").input.shape[1:])
    inputs, outputs = layer.kernel.shape
    first = names.dense_inputs_first
    shape = (inputs, outputs) if first else (outputs, inputs)
    convert = functools.partial(_dense, features=features, inputs_first=first)
    return [
        Place(layer.kernel, weight, shape, convert),
        Place(layer.bias, bias, (outputs,)),
    ]


def _dense(kernel, features, inputs_first):
    height, width, channels = features
    if not inputs_first:
        kernel = kernel.T
    outputs = kernel.shape[1]
    kernel = kernel.reshape(channels, height, width, outputs)
    return kernel.transpose(1, 2, 0, 3).reshape(-1, outputs)


def of_all_ranks(folder: str, by_rank: Mapping, count: int, name: str) -> list:
    """Returns the values of all ranks in order.

    Args:
        folder: the folder that contains the files, for the error message.
        by_rank: `{rank: value}`.
        count: number of ranks.
        name: name of a rank's file, with `{}` in place of the rank.

    Raises:
        FileNotFoundError: a rank's file is missing.
    """
    # A forged number of ranks must not fill the memory with names.
    ranks = range(min(count, len(by_rank) + MOST_MISSING))
    missing = [name.format(rank) for rank in ranks if rank not in by_rank]
    if missing:
        raise FileNotFoundError(
            f"{folder} does not contain {listed(missing)}: each of {count} ranks "
            "has its own classes. Copy the files of all machines into one folder."
        )
    return [by_rank[rank] for rank in range(count)]


def check_shapes(
    paths: Sequence[str],
    shapes: Sequence[tuple],
    expected: Sequence[tuple],
    total: int,
    origin: str = "the files",
) -> None:
    """Checks the shapes of the ranks' class weights.

    Args:
        paths: paths of the ranks' files.
        shapes: shapes of their class weights.
        expected: the shapes that the other library's split of the classes implies.
        total: number of classes.
        origin: the file that states the number of classes, for the error message.

    Raises:
        ValueError: the shapes differ.
    """
    for path, shape, wanted in zip(paths, shapes, expected, strict=True):
        split = f"{total} classes over {len(paths)} ranks, as in {origin}"
        rule = f"{path} must hold class weights of shape {list(wanted)}: {split}"
        advice = "A rank's file is missing or from another run"
        require(shape == wanted, rule, advice, shape=list(shape))


def sharded_rows(
    shards: Sequence[tuple[int, Callable[[], np.ndarray]]], row_shape: tuple[int, ...]
) -> Rows:
    """Returns rows, float32, from the shards of another library's devices.

    Args:
        shards: `[(number of classes, function that returns their rows)]` in the order
            of the classes; rows may be mapped from a file.
        row_shape: shape of one row.
    """
    ends = np.cumsum([count for count, _ in shards]).tolist()
    shard = functools.lru_cache(LOADED)(lambda index: shards[index][1]())
    lock = threading.Lock()

    def read(low, high):
        parts, first = [np.empty((0, *row_shape), np.float32)], 0
        for index, end in enumerate(ends):
            start, stop = max(low, first), min(high, end)
            if start < stop:
                with lock:  # so that no shard is opened twice
                    rows = shard(index)
                parts.append(np.asarray(rows[start - first : stop - first], np.float32))
            first = end
        return np.concatenate(parts)

    return Rows((ends[-1], *row_shape), "float32", read)
