"""Weights of another library into Keras layers, by name and checked as a whole."""

import dataclasses
import functools
from collections.abc import Callable

import keras
import numpy as np
from keras import layers

# Names listed in an error before it says "…".
LISTED = 6


@dataclasses.dataclass(frozen=True)
class Names:
    """What a library calls the arrays of a layer, after the layer's own name.

    Args:
        weight: kernel, scale of batch normalisation, or slopes of a PReLU.
        bias: of dense layers and batch normalisation.
        mean: moving mean.
        variance: moving variance.
        dense_inputs_first: whether a dense kernel is [inputs, outputs], as in Keras.
    """

    weight: str
    bias: str
    mean: str
    variance: str
    dense_inputs_first: bool


@dataclasses.dataclass(frozen=True)
class Place:
    """Where one array of another library goes.

    Attributes:
        variable: the Keras variable.
        name: what the other library calls it.
        shape: the shape that it has there.
        convert: from the array there to the variable's value.
    """

    variable: keras.Variable
    name: str
    shape: tuple[int, ...]
    convert: Callable[[np.ndarray], np.ndarray]


def places(backbone, layer_names, names):
    """All weights of a network and where they come from.

    Args:
        backbone: the Keras model.
        layer_names: `{name of the Keras layer: the other library's name of it}`.
        names: the `Names` of the other library.

    Returns:
        list of `Place`, or None where the network has layers with weights that
        `layer_names` does not have.
    """
    found = []
    for layer in backbone.layers:
        if not layer.weights:
            continue
        if layer.name not in layer_names:
            return None
        found += _of_layer(backbone, layer, layer_names[layer.name], names)
    return found


def assign(found, arrays, origin, network, hint=""):
    """Puts arrays into their variables, or none of them.

    Args:
        found: list of `Place`.
        arrays: `{name: array}` of the other library, all of which must be used.
        origin: where they come from, for the error.
        network: name of the network, for the error.
        hint: what to do about it, for the error.

    Raises:
        ValueError: arrays are missing, unknown, or of another shape.
    """
    wanted = {place.name for place in found}
    missing = [place.name for place in found if place.name not in arrays]
    unknown = [name for name in arrays if name not in wanted]
    shapes = [
        f"{place.name} is {list(arrays[place.name].shape)}, not {list(place.shape)}"
        for place in found
        if place.name in arrays and tuple(arrays[place.name].shape) != place.shape
    ]
    problems = [
        f"{title}: {listed(names)}"
        for title, names in (
            ("missing", missing),
            ("not in that network", unknown),
            ("of another shape", shapes),
        )
        if names
    ]
    if problems:
        raise ValueError(
            f"{origin} does not hold the weights of {network}. "
            f"{'. '.join(problems)}. {hint}".rstrip()
        )
    for place in found:
        place.variable.assign(place.convert(np.asarray(arrays[place.name])))


def listed(names):
    """The first few of some names, and how many there are."""
    names = list(names)
    text = ", ".join(map(str, names[:LISTED]))
    return text if len(names) <= LISTED else f"{text}, … ({len(names)} in all)"


def block_names(backbone):
    """Names of a residual network's blocks, "stage1_block1" and so on, in order."""
    names = {layer.name for layer in backbone.layers}
    found = []
    stage, block = 1, 1
    while f"stage{stage}_block{block}_bn1" in names:
        while f"stage{stage}_block{block}_bn1" in names:
            found.append((stage, block))
            block += 1
        stage, block = stage + 1, 1
    return found


def _of_layer(backbone, layer, name, names):
    """The `Place`s of one layer."""
    if isinstance(layer, layers.Conv2D):
        height, width, inputs, outputs = layer.kernel.shape
        shape = (outputs, inputs, height, width)
        return [Place(layer.kernel, name + names.weight, shape, _convolution)]
    if isinstance(layer, layers.PReLU):
        slopes = tuple(layer.alpha.shape)
        convert = functools.partial(np.reshape, newshape=slopes)
        return [Place(layer.alpha, name + names.weight, slopes[-1:], convert)]
    if isinstance(layer, layers.BatchNormalization):
        variables = {
            names.weight: layer.gamma if layer.scale else None,
            names.bias: layer.beta,
            names.mean: layer.moving_mean,
            names.variance: layer.moving_variance,
        }
        return [
            Place(variable, name + end, tuple(variable.shape), np.asarray)
            for end, variable in variables.items()
            if variable is not None
        ]
    if isinstance(layer, layers.Dense):
        return _of_dense(backbone, layer, name, names)
    raise TypeError(f"layer {layer.name} is a {type(layer).__name__}")


def _of_dense(backbone, layer, name, names):
    """A dense layer over the flattened feature map.

    Keras flattens (height, width, channels), the others (channels, height, width).
    """
    features = tuple(backbone.get_layer("flatten").input.shape[1:])
    inputs, outputs = layer.kernel.shape
    shape = (inputs, outputs) if names.dense_inputs_first else (outputs, inputs)
    convert = functools.partial(
        _dense, features=features, inputs_first=names.dense_inputs_first
    )
    return [
        Place(layer.kernel, name + names.weight, shape, convert),
        Place(layer.bias, name + names.bias, (outputs,), np.asarray),
    ]


def _convolution(kernel):
    return kernel.transpose(2, 3, 1, 0)


def _dense(kernel, features, inputs_first):
    height, width, channels = features
    if not inputs_first:
        kernel = kernel.T
    outputs = kernel.shape[1]
    kernel = kernel.reshape(channels, height, width, outputs)
    return kernel.transpose(1, 2, 0, 3).reshape(-1, outputs)
