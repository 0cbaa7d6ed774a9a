"""TensorFlow Lite files: one image at a time, for phones and boards."""

import warnings
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl import logging


def convert(owner, embed, image_size, kind, calibration=None):
    """Converts a function to a TensorFlow Lite model.

    The input is `images`, [1, height, width, 3] RGB in 0...255, the output
    `embedding`, float32 [1, embedding_size]. Batches have a fixed size of 1, as
    delegates of phones require.

    Args:
        owner: the loaded SavedModel, which holds the variables.
        embed: a function of it: float32 [N, h, w, 3] -> [N, size].
        image_size: (height, width).
        kind: "float32"; "float16", whose weights are halves; or "int8", whose weights
            and activations are integers and whose input is uint8, the pixels as they
            are.
        calibration: uint8 [n, height, width, 3] for "int8", images like those to come.

    Returns:
        (bytes of the file, whether all of it computes in `kind`).
    """

    def one(images):
        return {"embedding": embed(images)}

    spec = tf.TensorSpec([1, *image_size, 3], tf.float32, "images")
    function = tf.function(one, input_signature=[spec], autograph=False)
    concrete = function.get_concrete_function()

    def converter():
        made = tf.lite.TFLiteConverter.from_concrete_functions([concrete], owner)
        if kind != "float32":
            made.optimizations = [tf.lite.Optimize.DEFAULT]
        return made

    made = converter()
    if kind == "float16":
        made.target_spec.supported_types = [tf.float16]
    if kind != "int8":
        return made.convert(), True
    integers = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    try:
        return _integers(made, integers, calibration), True
    except Exception as error:  # noqa: BLE001 - the converter raises any error
        logging.warning(
            "Not every operation of the network has an integer version; the others "
            "compute in float32: %s",
            str(error).splitlines()[0][:200],
        )
    mixed = [*integers, tf.lite.OpsSet.TFLITE_BUILTINS]
    return _integers(converter(), mixed, calibration), False


def _integers(converter, operations, calibration):
    images = np.array(calibration, np.float32)
    # The input's scale is measured too. With both ends of the range it is 1, so that
    # pixels are the input as they are.
    images[0, 0, 0], images[0, 0, -1] = 0, 255

    def examples():
        for image in images:
            yield [image[None]]

    converter.representative_dataset = examples
    converter.target_spec.supported_ops = operations
    converter.inference_input_type = tf.uint8
    converter.inference_output_type = tf.float32
    with warnings.catch_warnings():
        # It expects statistics of the old quantizer, which are not needed.
        warnings.filterwarnings("ignore", "Statistics for quantized inputs")
        return converter.convert()


def load(content: bytes) -> Callable:
    """Makes a callable of a file's bytes; `formats` says which."""
    interpreter = tf.lite.Interpreter(model_content=content)
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
    (result,) = interpreter.get_output_details()

    def embed(images):
        rows = []
        for image in images:
            interpreter.set_tensor(entry["index"], image[None].astype(entry["dtype"]))
            interpreter.invoke()
            rows.append(interpreter.get_tensor(result["index"])[0])
        return np.stack(rows)

    return embed
