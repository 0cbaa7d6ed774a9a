"""Converts an exported model to TensorFlow Lite and ONNX files.

Each file is made from the SavedModel, written into its `assets.extra/`, and loaded
again as a function: uint8 `[N, height, width, 3]` -> float32 `[N, embedding_size]`.
"""

import functools
import logging as python_logging
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from plsc_tf.checkpoints.importers import onnx_files
from plsc_tf.evaluation.embedding_store import unit
from plsc_tf.requirements import require, require_package
from plsc_tf.serving.signatures import one_input
from plsc_tf.storage import files

SAVED_MODEL = "saved_model"
FILES = {
    "tflite": "embedding.tflite",
    "tflite_float16": "embedding_float16.tflite",
    "tflite_int8": "embedding_int8.tflite",
    "onnx": "embedding.onnx",
}
FORMATS = (SAVED_MODEL, *FILES)
# ONNX Runtime reads this version of the operator set since 1.12.
OPSET = 17
INPUT = "data"


def check_formats(formats: Sequence[str], calibration) -> None:
    """Checks before the export starts that the formats can be written.

    Raises:
        ValueError: a format is unknown, saved_model is missing, or tflite_int8 has no
            calibration images.
        ImportError: a package is missing; the message names the extra to install.
    """
    unknown = [name for name in formats if name not in FORMATS]
    require(not unknown, f"formats may contain {', '.join(FORMATS)}", formats=unknown)
    require(SAVED_MODEL in formats, "formats must contain saved_model", formats=formats)
    if "tflite_int8" in formats and (calibration is None or not len(calibration)):
        raise ValueError("tflite_int8 requires calibration images. Received none.")
    for name in ("onnx", "tf2onnx", "onnxruntime") if "onnx" in formats else ():
        require_package(name, "onnx", "The format onnx")


def write(
    name: str,
    saved_model,
    folder: str,
    image_size: tuple[int, int],
    normalize: bool,
    calibration: np.ndarray | None,
) -> tuple[dict, Callable]:
    """Writes one file into `assets.extra/` and loads it again.

    Args:
        name: a key of `FILES`.
        saved_model: the loaded SavedModel.
        folder: the SavedModel's folder.
        image_size: (height, width).
        normalize: whether the SavedModel's embeddings have length 1.
        calibration: uint8 `[n, height, width, 3]`, for tflite_int8.

    Returns:
        (the file's entry for the model card, a function: uint8 `[N, height, width, 3]`
        -> float32 `[N, embedding_size]`, of length 1 if `normalize`).
    """
    height, width = image_size
    card = {"file": f"assets.extra/{FILES[name]}", "normalize": bool(normalize)}

    def embed(images):
        return saved_model.signatures["images"](images=images)["embedding"]

    if name == "onnx":
        content, load = _to_onnx(embed, image_size), _load_onnx
        card["input"] = f"data: float32 [N, 3, {height}, {width}]"
    else:
        kind, load = name.partition("_")[2] or "float32", _load_tflite
        if kind == "int8" and normalize:
            # Eight bits are too few for the values of a vector of length 1, so the file
            # returns embeddings before normalization.
            embed, card["normalize"] = saved_model.raw, False
        content = _to_tflite(saved_model, embed, image_size, kind, calibration)
        dtype = "uint8" if kind == "int8" else "float32"
        card["input"] = f"images: {dtype} [1, {height}, {width}, 3]"
        if kind == "int8":
            details = tf.lite.Interpreter(model_content=content).get_tensor_details()
            floats = [one["name"] for one in details if one["dtype"] == np.float32]
            card["integers_only"] = len(floats) == 1  # the output
    path = files.join(folder, card["file"])
    files.make_dirs(files.parent(path))
    files.write(path, content)
    card["bytes"], loaded = len(content), load(files.read(path))
    if normalize and not card["normalize"]:
        return card, lambda images: unit(loaded(images))
    return card, loaded


def _to_onnx(embed, image_size):
    """Converts a function to ONNX in the layout of insightface's recognition models.

    The input is `data`, float32 `[N, 3, height, width]`, RGB in 0..255; the output is
    `embedding`, float32 `[N, embedding_size]`. N is variable.
    """
    import onnx
    import tf2onnx

    python_logging.getLogger("tf2onnx").setLevel(python_logging.WARNING)
    spec = tf.TensorSpec([None, *image_size, 3], tf.float32, INPUT)
    function = one_input(lambda data: {"embedding": embed(data)}, spec)
    options = {"opset": OPSET, "inputs_as_nchw": [INPUT], "large_model": False}
    model, _ = tf2onnx.convert.from_function(function, [spec], **options)
    graph = model.graph
    for value in (graph.input[0], graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    # The model scales the pixels itself. insightface does so too, unless the names of
    # two of the first eight nodes begin like these (model_zoo/arcface_onnx.py).
    for node, name in zip(graph.node, ("Sub_pixels", "Mul_pixels"), strict=False):
        node.name = name
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _load_onnx(content):
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return functools.partial(onnx_files.run, session)


def _to_tflite(saved_model, embed, image_size, kind, calibration):
    """Converts a function to a TensorFlow Lite model.

    The input is `images`, `[1, height, width, 3]`, RGB in 0..255; the output is
    `embedding`, float32 `[1, embedding_size]`. The batch size is fixed at 1, as the
    hardware delegates of phones require.

    Args:
        saved_model: the loaded SavedModel, which holds the variables.
        embed: a function of `saved_model`: float32 `[N, h, w, 3]` -> `[N, size]`.
        image_size: (height, width).
        kind: "float32"; "float16", with half-precision weights; or "int8", with
            integer weights and activations and uint8 pixels as input.
        calibration: uint8 `[n, height, width, 3]`, for "int8": images that resemble
            those to be embedded.

    Returns:
        The content of the file.
    """
    spec = tf.TensorSpec([1, *image_size, 3], tf.float32, "images")
    function = one_input(lambda images: {"embedding": embed(images)}, spec)
    concrete, sets = function.get_concrete_function(), tf.lite.OpsSet
    lite = tf.lite.TFLiteConverter.from_concrete_functions([concrete], saved_model)
    if kind != "float32":
        lite.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        lite.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        _calibrate(lite, calibration)
        # Operations without an integer version compute in float32.
        integers = [sets.TFLITE_BUILTINS_INT8, sets.TFLITE_BUILTINS]
        lite.target_spec.supported_ops = integers
    with warnings.catch_warnings():
        # The warning asks for statistics that only the old quantizer needs.
        warnings.filterwarnings("ignore", "Statistics for quantized inputs")
        return lite.convert()


def _calibrate(converter, calibration):
    """Sets the images from which the converter derives the ranges of activations."""
    images = np.array(calibration, np.float32)
    # The converter derives the input's scale from these images. If they contain both 0
    # and 255, the scale is 1, and callers can pass uint8 pixels unchanged.
    images[0, 0, 0], images[0, 0, -1] = 0, 255

    converter.representative_dataset = lambda: ([image[None]] for image in images)
    converter.inference_input_type = tf.uint8
    converter.inference_output_type = tf.float32


def _load_tflite(content):
    run = tf.lite.Interpreter(model_content=content).get_signature_runner()
    dtype = run.get_input_details()["images"]["dtype"]

    def embed(images):
        rows = [run(images=image[None].astype(dtype)) for image in images]
        return np.concatenate([row["embedding"] for row in rows])

    return embed
