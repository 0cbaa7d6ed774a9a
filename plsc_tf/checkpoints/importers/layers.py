"""Maps another library's weights to Keras layers and reads its class weight shards."""

import contextlib
import functools
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from plsc_tf.checkpoints.rows import Rows
from plsc_tf.requirements import listed, require

# Maximum number of missing ranks that an error message counts.
MOST_MISSING = 10_000
# Maximum number of opened shards to keep, one for each writing thread.
LOADED = 2
# PyTorch's names of a layer's weights. Kernels, scales and slopes are a "weight".
SUFFIXES = (".weight", ".bias", ".running_mean", ".running_var")
# Suffix of a batch normalization that the other program folded into the layer before.
FOLDED = " (folded batch norm)"
_BLOCK = re.compile(r"stage\d+_block\d+|.*")
_WITH_KERNEL = keras.layers.Dense, keras.layers.Conv2D, keras.layers.DepthwiseConv2D


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


def match(backbone: keras.Model, weights: Mapping[str, np.ndarray]) -> dict[str, str]:
    """Returns `{name of a Keras layer: name of the other library's layer}`.

    The layers of each kind have the same order in both libraries. If there are too few
    in the other one, the rest get names that no array has.

    Args:
        backbone: the Keras model.
        weights: `{name of a layer and suffix: array}`, in the order of the layers.
    """
    waiting = {kind: iter(layers) for kind, layers in kinds(weights).items()}
    found: dict[str, str] = {}
    before: Any = None
    for layer in _in_order(backbone):
        kind = type(layer).__name__.removeprefix("Depthwise")
        biased = before is not None and f"{found[before.name]}.bias" in weights
        if kind == "BatchNormalization" and biased and not before.use_bias:
            found[layer.name] = found[before.name] + FOLDED
        else:
            found[layer.name] = next(waiting.get(kind, iter(())), f"our {layer.name}")
        before = layer if isinstance(layer, _WITH_KERNEL) else None
    return found


def kinds(weights: Mapping[str, np.ndarray]) -> dict[str, list[str]]:
    """Returns `{name of a Keras class: the other library's layers of that kind}`."""
    arrays: dict[str, dict] = {}
    for name, array in weights.items():
        layer, _, suffix = name.rpartition(".")
        arrays.setdefault(layer, {})[suffix] = array
    found: dict[str, list[str]] = {}
    for layer, own in arrays.items():
        rank = np.ndim(own.get("weight", 0))
        kind = {2: "Dense", 3: "PositionEmbedding", 4: "Conv2D"}.get(rank, "PReLU")
        if "running_mean" in own:
            kind = "BatchNormalization"
        elif rank == 1 and "bias" in own:
            kind = "LayerNormalization"
        found.setdefault(kind, []).append(layer)
    return found


def _in_order(backbone):
    """Returns the layers with weights; of a block, those of the shortcut come last."""
    layers = [layer for layer in backbone.layers if layer.weights]
    blocks = [_BLOCK.match(layer.name)[0] for layer in layers]

    def place(layer):
        return blocks.index(_BLOCK.match(layer.name)[0]), "shortcut" in layer.name

    return sorted(layers, key=place)


def unfold(
    backbone: keras.Model, found: Mapping[str, str], weights: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Returns the weights for normalizations that only one of the libraries has.

    Args:
        backbone: the Keras model.
        found: the result of `match`.
        weights: the other library's weights.
    """
    weights = dict(weights)
    for ours, theirs in found.items():
        if theirs.endswith(FOLDED):
            # With a mean of 0 and a variance of 1, it only adds the bias.
            bias = weights.pop(f"{theirs.removesuffix(FOLDED)}.bias")
            one, epsilon = np.ones_like(bias), backbone.get_layer(ours).epsilon
            arrays = one, bias, np.zeros_like(bias), one - np.float32(epsilon)
            weights |= zip((theirs + end for end in SUFFIXES), arrays, strict=True)
    norm, dense = found.get("embedding"), found.get("embedding_dense")
    if not norm or backbone.get_layer("embedding").scale:
        return weights
    # arcface_torch keeps this scale at 1, but other programs may have trained it:
    # s (Wx + b − m) = (sW) x + sb − sm.
    scale = weights.get(f"{norm}.weight")
    if scale is None or scale.ndim != 1:
        return weights
    del weights[f"{norm}.weight"]
    for name in (f"{dense}.weight", f"{dense}.bias", f"{norm}.running_mean"):
        if name in weights and len(weights[name]) == len(scale):
            factor = scale.reshape(-1, *[1] * (weights[name].ndim - 1))
            weights[name] = weights[name] * factor
    return weights


def places(backbone: keras.Model, found: Mapping[str, str]) -> list[Place]:
    """Returns a `Place` for each of a network's weights.

    Args:
        backbone: the Keras model.
        found: the result of `match`.
    """
    both = ((backbone.get_layer(ours), theirs) for ours, theirs in found.items())
    return [place for pair in both for place in _of_layer(backbone, *pair)]


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


def _of_layer(backbone, layer, name):
    """Returns the `Place`s of one layer."""
    weight = f"{name}.weight"
    if isinstance(layer, keras.layers.PReLU):
        slopes = tuple(layer.alpha.shape)
        return [Place(layer.alpha, weight, slopes[-1:], lambda a: a.reshape(slopes))]
    if not isinstance(layer, _WITH_KERNEL):
        suffixes = SUFFIXES if getattr(layer, "scale", True) else SUFFIXES[1:]
        pairs = zip(layer.weights, suffixes, strict=False)
        return [Place(v, name + suffix, tuple(v.shape)) for v, suffix in pairs]
    found = []
    if layer.use_bias:
        found = [Place(layer.bias, f"{name}.bias", tuple(layer.bias.shape))]
    if isinstance(layer, keras.layers.Dense):
        inputs, outputs = layer.kernel.shape
        convert = functools.partial(_dense, _features(backbone, inputs))
        return [Place(layer.kernel, weight, (outputs, inputs), convert), *found]
    height, width, inputs, outputs = layer.kernel.shape
    if isinstance(layer, keras.layers.Conv2D):
        shape = (outputs, inputs, height, width)
        convert = functools.partial(np.transpose, axes=(2, 3, 1, 0))
    else:
        shape = (inputs, outputs, height, width)
        convert = functools.partial(_depthwise, layer.kernel.shape)
    return [Place(layer.kernel, weight, shape, convert), *found]


def _depthwise(shape, kernel):
    # The other libraries have groups of n channels, each with n outputs: the sums of
    # what our n channels yield.
    height, width, _, size = shape
    groups = kernel.reshape(-1, size, size, height, width)
    return groups.transpose(3, 4, 0, 2, 1).reshape(shape)


def _features(backbone, inputs):
    """Returns the feature map (height, width, channels) that a dense layer reads."""
    flat = [layer.input.shape for layer in backbone.layers if layer.name == "flatten"]
    fits = flat and len(flat[0]) == 4 and math.prod(flat[0][1:]) == inputs
    return flat[0][1:] if fits else (1, 1, inputs)


def _dense(features, kernel):
    # Keras flattens (height, width, channels); the other libraries flatten (channels,
    # height, width).
    height, width, channels = features
    kernel = kernel.T.reshape(channels, height, width, -1)
    return kernel.transpose(1, 2, 0, 3).reshape(height * width * channels, -1)


@contextlib.contextmanager
def reading(path: str, kind: str) -> Iterator[None]:
    """Raises every error as a ValueError that names the file and what it should be."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - corrupt bytes raise anything
        problem = f"{path} is truncated, or not {kind}: {error!r:.300}"
        raise ValueError(problem) from None


def of_all_ranks(
    folder: str, by_rank: Mapping, count: int, name: Callable[[int], str]
) -> list:
    """Returns the values of all ranks in order.

    Args:
        folder: the folder that contains the files, for the error message.
        by_rank: `{rank: value}`.
        count: number of ranks.
        name: function of a rank that returns the name of its file.

    Raises:
        FileNotFoundError: a rank's file is missing.
    """
    # A forged number of ranks must not fill the memory with names.
    ranks = range(min(count, len(by_rank) + MOST_MISSING))
    missing = [name(rank) for rank in ranks if rank not in by_rank]
    rule = f"{folder} does not contain {listed(missing)}: each rank has its own classes"
    advice = f"Copy the files of all {count} ranks into one folder"
    require(not missing, rule, advice, raises=FileNotFoundError)
    return [by_rank[rank] for rank in range(count)]


def sharded_rows(
    shards: Sequence[tuple], sizes: Sequence[int], row_shape: Sequence[int], origin=""
) -> Rows:
    """Returns rows, float32, from the shards of another library's devices.

    Args:
        shards: `[(file, shape of its rows, function that returns them)]` of all ranks
            in order; rows may be mapped from the file.
        sizes: how many classes the other library assigns to each rank.
        row_shape: shape of one row.
        origin: the file that states the number of classes, for the error message.

    Raises:
        ValueError: the shapes differ.
    """
    total = f"{sum(sizes)} classes over {len(shards)} ranks, as in "
    for (path, shape, _), size in zip(shards, sizes, strict=True):
        wanted = [size, *row_shape]
        split = f"{wanted}: {total}{origin or 'the files'}"
        rule = f"{path} must hold class weights of shape {split}"
        advice = "A rank's file is missing or from another run"
        require(list(shape) == wanted, rule, advice, shape=list(shape))
    ends = np.cumsum(sizes).tolist()
    opened = functools.lru_cache(LOADED)(lambda index: shards[index][2]())
    lock = threading.Lock()

    def read(low, high):
        parts, first = [np.empty((0, *row_shape), np.float32)], 0
        for index, end in enumerate(ends):
            start, stop = max(low, first), min(high, end)
            if start < stop:
                with lock:  # so that no shard is opened twice
                    rows = opened(index)
                parts.append(np.asarray(rows[start - first : stop - first], np.float32))
            first = end
        return np.concatenate(parts)

    return Rows((ends[-1], *row_shape), "float32", read)
