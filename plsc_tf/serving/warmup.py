"""Requests that TensorFlow Serving sends to a model before it answers any other.

It reads `assets.extra/tf_serving_warmup_requests`, a TFRecord file of at most 1000
`tensorflow.serving.PredictionLog` (servables/tensorflow/saved_model_warmup_util.cc).
The messages are written here field by field, with the numbers of tensorflow_serving/
apis/{prediction_log,predict,model}.proto, so that no export needs
tensorflow-serving-api.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from plsc_tf.storage import files

NAME = "tf_serving_warmup_requests"


def write(
    folder: str, model_name: str, requests: Sequence[tuple[str, Mapping]]
) -> None:
    """Writes the requests of a SavedModel.

    Args:
        folder: of the SavedModel.
        model_name: its name in URLs, which TF Serving ignores here.
        requests: list of (signature, {input: array or list of bytes}).
    """
    extra = files.join(folder, "assets.extra")
    files.make_dirs(extra)
    with tf.io.TFRecordWriter(files.join(extra, NAME)) as file:
        for signature, inputs in requests:
            spec = _field(1, model_name.encode()) + _field(3, signature.encode())
            request = _field(1, spec)
            for name, value in inputs.items():
                tensor = tf.make_tensor_proto(value).SerializeToString()
                request += _field(2, _field(1, name.encode()) + _field(2, tensor))
            # PredictionLog.predict_log.request
            file.write(_field(6, _field(1, request)))


def _field(number, content):
    """A text, bytes or message as a field of a protobuf message."""
    length, digits = len(content), []
    while length > 127:  # noqa: PLR2004 - seven bits a byte, the lowest first
        digits.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *digits, length]) + content
