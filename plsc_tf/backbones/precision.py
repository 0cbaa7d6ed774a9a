"""Chooses which layers of a network compute in half precision."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import keras
from keras import layers

from plsc_tf import private_apis
from plsc_tf.requirements import did_you_mean, require, require_one_of

HALF = ("float16", "bfloat16")
NORMALIZATIONS = (
    layers.BatchNormalization,
    layers.GroupNormalization,
    layers.LayerNormalization,
    layers.RMSNormalization,
    layers.UnitNormalization,
)


@dataclass(frozen=True)
class Precision:
    """The precision of a network's layers; their weights are always float32.

    Args:
        dtype: "float32", "float16" (Keras's policy mixed_float16) or "bfloat16"
            (mixed_bfloat16).
        keep_batchnorm_fp32: whether batch normalizations also output float32
            (MindSpore). Their computation and statistics are always float32.
        white: names or class names of layers that compute in half precision, even if
            the rules of `apply` would choose float32 (PLSC: amp_lists).
        black: names or class names of layers that compute in float32.

    Raises:
        ValueError: the dtype is unknown, or a name is in both lists, or
            `keep_batchnorm_fp32` contradicts the white list.
    """

    dtype: str = "float32"
    keep_batchnorm_fp32: bool = False
    white: tuple[str, ...] = ()
    black: tuple[str, ...] = ()

    def __post_init__(self):
        require_one_of(("float32", *HALF), dtype=self.dtype)
        both = sorted(set(self.white) & set(self.black))
        require(not both, f"A layer must not be in both white and black: {both}")
        both = self.keep_batchnorm_fp32 and "BatchNormalization" in self.white
        rule = "keep_batchnorm_fp32 contradicts BatchNormalization in the white list"
        require(not both, rule)


def apply(network: keras.Model, precision: Precision) -> keras.Model:
    """Sets the precision of a network's layers, in place.

    With half precision, only the end of the network computes in float32, as in
    arcface_torch: the last dense layer and any normalizations and layers without
    weights that follow it. For a network with a different ending, a cast is added to
    make the embeddings float32. A layer's name in `white` or `black` takes precedence
    over its class name, and both take precedence over these rules.

    Layers whose weights are not float32, such as quantized layers, are unchanged.

    Args:
        network: built network from `[N, height, width, channels]` to
            `[N, embedding_size]`.
        precision: precision to set; float32 changes nothing.

    Returns:
        `network`, or a model that shares its layers and casts its output.

    Raises:
        ValueError: a listed name matches no layer or class in this network.
    """
    if precision.dtype not in HALF:
        return network
    own_layers = _computing_layers(network)
    _check_names(own_layers, (*precision.white, *precision.black), network.name)
    ending = _ending(network)
    for layer in own_layers:
        half = _is_half(layer, precision, layer in ending)
        layer.dtype_policy = f"mixed_{precision.dtype}" if half else "float32"
    if ending and ending[-1].compute_dtype == "float32":
        return network
    cast = layers.Activation("linear", dtype="float32", name="float32")
    return keras.Model(network.inputs[0], cast(network.outputs[0]), name=network.name)


@contextlib.contextmanager
def in_float32(network: keras.Model):
    """Makes a network compute in float32 within the block, for example for export.

    A graph traced within the block keeps computing in float32 afterwards.

    Args:
        network: any Keras model.
    """
    before = [(layer, layer.dtype_policy) for layer in _computing_layers(network)]
    try:
        for layer, _ in before:
            layer.dtype_policy = "float32"
        yield network
    finally:
        for layer, policy in before:
            layer.dtype_policy = policy


def _computing_layers(network) -> list:
    """Returns all layers, at any depth, that have float32 weights or no weights.

    Functional models, input layers and quantized layers are left out.
    """
    return [
        layer
        for layer in private_apis.layers_inside(network, include_self=True)
        if not _is_graph(layer)
        and not isinstance(layer, layers.InputLayer)
        and layer.quantization_mode is None
        and layer.variable_dtype == "float32"
    ]


def _is_graph(layer) -> bool:
    """Returns whether a layer is a model that only connects its own layers."""
    return isinstance(layer, keras.Model) and getattr(layer, "inputs", None) is not None


def _is_half(layer, precision, at_the_end) -> bool:
    for name in (layer.name, type(layer).__name__):
        if name in precision.white or name in precision.black:
            return name in precision.white
    if precision.keep_batchnorm_fp32 and isinstance(layer, layers.BatchNormalization):
        return False
    return not at_the_end


def _ending(network) -> list:
    """Returns the last layers, which stay in float32."""
    ending = []
    for layer in reversed([*_in_order(network)]):
        if isinstance(layer, layers.Dense):
            return [layer, *ending]
        if layer.weights and not isinstance(layer, NORMALIZATIONS):
            break
        ending.insert(0, layer)
    return ending


def _in_order(layer) -> Iterator:
    """Yields the layers in order; a model of a user's own code is one of them."""
    if _is_graph(layer):
        for inner in layer.layers:
            yield from _in_order(inner)
    else:
        yield layer


def _check_names(own_layers, listed, network_name) -> None:
    classes = {type(layer).__name__ for layer in own_layers}
    known = classes | {layer.name for layer in own_layers}
    for name in set(listed) - known:
        raise ValueError(
            f"amp_lists must name layers of {network_name!r} or their types "
            f"({', '.join(sorted(classes))}). Received: {name!r}."
            f"{did_you_mean(name, known, most=3)}"
        )
