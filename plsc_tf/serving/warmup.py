"""Writes the requests with which TensorFlow Serving warms up a model.

TensorFlow Serving reads them from `assets.extra/tf_serving_warmup_requests`, a TFRecord
file of at most 1000 `tensorflow.serving.PredictionLog` messages
(servables/tensorflow/saved_model_warmup_util.cc). This module writes the messages field
by field, with the field numbers of
tensorflow_serving/apis/{prediction_log,predict,model}.proto, to avoid a dependency on
tensorflow-serving-api.
"""

from collections.abc import Sequence

import tensorflow as tf

from plsc_tf.storage import files

NAME = "tf_serving_warmup_requests"


def write(
    folder: str, model_name: str, image: bytes, requests: Sequence[tuple[str, int]]
) -> None:
    """Writes a SavedModel's warm-up requests.

    Args:
        folder: the SavedModel's folder.
        model_name: the model's name in URLs, which TF Serving ignores in this file.
        image: an encoded image.
        requests: list of (signature, how often its input `bytes` holds the image).
    """
    extra = files.join(folder, "assets.extra")
    files.make_dirs(extra)
    with tf.io.TFRecordWriter(files.join(extra, NAME)) as file:
        for signature, count in requests:
            spec = _field(1, model_name.encode()) + _field(3, signature.encode())
            tensor = tf.make_tensor_proto([image] * count).SerializeToString()
            data = _field(1, b"bytes") + _field(2, tensor)
            # PredictionLog.predict_log.request
            file.write(_field(6, _field(1, _field(1, spec) + _field(2, data))))


def _field(number, content):
    """Encodes a string, bytes or a message as a field of a protobuf message."""
    length, digits = len(content), []
    while length > 127:  # noqa: PLR2004 - seven bits per byte, lowest first
        digits.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *digits, length]) + content
