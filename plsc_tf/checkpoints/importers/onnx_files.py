"""Imports networks of insightface from ONNX files, such as its pretrained models.

PyTorch's exporter writes the operations in the order of computation, which is the order
of our layers. It folds a batch normalization into the convolution before it. Whatever a
file contains, the imported network is compared with the file itself.
"""

import functools
import os
import re
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from plsc_tf.checkpoints.importers import arcface_torch, layers
from plsc_tf.requirements import listed, require, require_package
from plsc_tf.storage import files

KNOWN, network = arcface_torch.KNOWN, arcface_torch.network
standard = arcface_torch.standard
# Largest difference between the embeddings; if one of their values exceeds 1, relative
# to the largest value.
TOLERANCE = 1e-4
MOST_NODES = 1 << 14
FILES = re.compile(r".*\.onnx")
# Fields of an attribute, without those that hold graphs or several tensors.
_PLAIN = {"name", "type", "doc_string", "f", "i", "s", "t", "floats", "ints", "strings"}
# Operations that add a bias in a node of their own, see `_weights`.
_WITHOUT_BIAS = ("Conv", "Gemm", "MatMul", "Mul")


def read(folder: str, names: Iterable[str]) -> dict[str, Any]:
    """Opens an ONNX file.

    Args:
        folder: the folder that contains the file.
        names: the names of one file or of all files in the folder.

    Returns:
        the fields of a `plsc_tf.checkpoints.importers.Source`. A layer's name is that
        of its operation and the number of the node.

    Raises:
        ImportError: a package is missing.
        ValueError: there are several files, or the file is damaged or contains more
            than a graph of operations.
    """
    found = [name for name in names if FILES.fullmatch(name)]
    rule = f"{folder} must have one ONNX file"
    require(len(found) == 1, rule, "Set import_from to one", files=listed(found))
    path = os.path.join(folder, found[0])
    with _reading(path):
        weights = _weights(_graph(path))
    prove = functools.partial(_prove, path)
    return {"backbone": weights, "backbone_file": path, "prove": prove}


def _reading(path):
    for package in ("onnx", "onnxruntime"):
        require_package(package, "onnx", "An ONNX file")
    return layers.reading(path, "a network in an ONNX file")


def session(path: str) -> Any:
    """Opens a file in ONNX Runtime; returns its `InferenceSession`.

    Raises:
        ImportError: a package is missing.
        ValueError: see `read`.
    """
    with _reading(path):
        from onnxruntime import InferenceSession

        _graph(path)
        return InferenceSession(path, providers=["CPUExecutionProvider"])


def run(session: Any, images: np.ndarray) -> np.ndarray:
    """Returns the output of a network, `[n, size]`.

    Args:
        session: the network's `InferenceSession`, with one input.
        images: `[n, height, width, 3]`, in the scale of the network.
    """
    (entry,), count = session.get_inputs(), len(images)
    # Some networks take a fixed number of images, mostly one.
    step = entry.shape[0] if isinstance(entry.shape[0], int) else count
    images = np.ascontiguousarray(images.transpose(0, 3, 1, 2), np.float32)
    parts = (images[start : start + step] for start in range(0, count, step))
    return np.concatenate([session.run(None, {entry.name: x})[0] for x in parts])


def _graph(path):
    """Returns the graph in a file, which may only consist of ONNX's own operations."""
    import onnx

    model = onnx.load_model_from_string(files.read(path))  # no FIFO, which never ends
    graph = model.graph
    require(0 < len(graph.node) <= MOST_NODES, "it has no or too many nodes")
    values = [value for node in graph.node for value in node.attribute]
    plain = not any(node.domain for node in graph.node) and not model.functions
    fields = {field.name for value in values for field, _ in value.ListFields()}
    rule = "it has operations that are not ONNX's, or graphs within its graph"
    plain &= fields <= _PLAIN and not graph.sparse_initializer
    require(plain, rule)
    # ONNX and ONNX Runtime would read the files that these name.
    tensors = [*graph.initializer, *(value.t for value in values)]
    outside = map(onnx.external_data_helper.uses_external_data, tensors)
    require(not any(outside), "its weights are in other files")
    return graph


def _weights(graph):
    """Returns the weights by PyTorch's suffixes."""
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in graph.initializer}
    weights, layer = {}, ""
    for number, node in enumerate(graph.node):
        if node.op_type == "Identity" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
            continue
        tensors = [constants[name] for name in node.input if name in constants]
        arrays = [numpy_helper.to_array(tensor) for tensor in tensors]
        # The others are shapes, or constants such as epsilon.
        arrays = [a.astype("f4") for a in arrays if a.dtype.kind == "f" and a.size > 1]
        if not arrays:
            continue
        bias = f"{layer}.bias"
        without = layer.startswith(_WITHOUT_BIAS) and bias not in weights
        if node.op_type == "Add" and without:
            weights[bias] = arrays[0].reshape(-1)
            continue
        layer = f"{node.op_type}_{number}"
        if node.op_type == "PRelu":
            arrays[0] = arrays[0].reshape(-1)
        transposed = any(one.name == "transB" and one.i for one in node.attribute)
        if node.op_type in ("Gemm", "MatMul") and not transposed:
            arrays[0] = arrays[0].T
        suffixes = (layer + suffix for suffix in layers.SUFFIXES)
        weights |= zip(suffixes, arrays, strict=False)
    return weights


def _prove(path, backbone):
    """Raises ValueError unless the file gives a network's embeddings of images."""
    shape = backbone.input_shape[1:]
    images = np.random.default_rng(0).integers(0, 256, (3, *shape)).astype(np.float32)
    with keras.device("cpu"):  # GPUs would round the products to ten bits
        ours = np.asarray(backbone((images - 127.5) / 128, training=False))
    with layers.reading(path, "a file that ONNX Runtime can run"):
        theirs = run(session(path), (images - 127.5) / 127.5)
    difference = np.abs(ours - theirs).max() if theirs.shape == ours.shape else np.inf
    allowed = TOLERANCE * max(1.0, float(np.abs(ours).max()))
    rule = f"{path} must give the embeddings of '{backbone.name}' with the same weights"
    advice = "It computes something else, or scales its images itself"
    good = difference <= allowed < np.inf
    require(good, rule, advice, difference=difference, allowed=allowed)
