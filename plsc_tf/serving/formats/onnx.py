"""ONNX files, laid out as insightface's recognition models are."""

import importlib
import logging
from collections.abc import Callable

import numpy as np
import tensorflow as tf

# Read by ONNX Runtime 1.12 and later.
OPSET = 17
INPUT = "data"


def check_installed() -> None:
    """Finds missing packages before any work is done.

    Raises:
        ImportError: names the extra.
    """
    try:
        for name in ("onnx", "tf2onnx", "onnxruntime"):
            importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"The format onnx needs {error.name}: pip install 'plsc_tf[onnx]'"
        ) from error


def convert(embed: Callable, image_size: tuple[int, int]) -> bytes:
    """Converts a function to an ONNX model.

    The input is `data`, float32 [N, 3, height, width] RGB in 0...255, the output
    `embedding`, float32 [N, embedding_size]; N is free.

    Args:
        embed: a function of a loaded SavedModel: float32 [N, h, w, 3] -> [N, size].
        image_size: (height, width).

    Returns:
        bytes of the file.
    """
    check_installed()
    import onnx
    import tf2onnx

    logging.getLogger("tf2onnx").setLevel(logging.WARNING)
    spec = [tf.TensorSpec([None, *image_size, 3], tf.float32, INPUT)]
    function = tf.function(
        lambda data: {"embedding": embed(data)}, input_signature=spec, autograph=False
    )
    model, _ = tf2onnx.convert.from_function(
        function, spec, opset=OPSET, inputs_as_nchw=[INPUT], large_model=False
    )
    graph = model.graph
    for side, value in (("input", graph.input[0]), ("output", graph.output[0])):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
        expected = INPUT if side == "input" else "embedding"
        if value.name != expected:
            raise RuntimeError(f"tf2onnx named the {side} {value.name!r}.")
    _mark_as_scaling(graph, onnx.helper)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _mark_as_scaling(graph, helper):
    """Shows insightface that the model scales pixels itself.

    Unless there are nodes called "Sub..." and "Mul..." among the first eight,
    insightface scales the pixels (model_zoo/arcface_onnx.py). The network's own scaling
    is mostly folded into its first convolution: subtract 0 and multiply by 1.
    """
    entered = "pixels"
    for number, node in enumerate(graph.node):
        node.name = f"{node.op_type}_{number}"
        for place, name in enumerate(node.input):
            if name == INPUT:
                node.input[place] = entered
    first = [("Sub", INPUT, "no_mean", 0.0), ("Mul", "Sub_pixels", "no_scale", 1.0)]
    for place, (operation, data, name, value) in enumerate(first):
        graph.initializer.append(helper.make_tensor(name, 1, [], [value]))
        result = entered if operation == "Mul" else "Sub_pixels"
        node = helper.make_node(
            operation, [data, name], [result], name=f"{operation}_pixels"
        )
        graph.node.insert(place, node)


def load(content: bytes) -> Callable:
    """Makes a callable of a file's bytes; `formats` says which."""
    check_installed()
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])

    def embed(images):
        channels_first = np.transpose(images, (0, 3, 1, 2)).astype(np.float32)
        return session.run(None, {INPUT: np.ascontiguousarray(channels_first)})[0]

    return embed
