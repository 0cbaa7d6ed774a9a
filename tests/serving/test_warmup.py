"""TF Serving's warm-up requests, read by its own messages."""

import pathlib

import pytest
import tensorflow as tf

from plsc_tf.serving import warmup

apis = pytest.importorskip(
    "tensorflow_serving.apis.prediction_log_pb2",
    reason="needs pip install 'plsc_tf[serving]'",
)


def records(folder):
    path = pathlib.Path(folder, "assets.extra", "tf_serving_warmup_requests")
    return [raw.numpy() for raw in tf.data.TFRecordDataset([str(path)])]


def test_the_same_bytes_as_tensorflow_serving_api_writes(tmp_path):
    image = bytes(range(256))
    warmup.write(str(tmp_path), "m", image, [("classify", 20)])
    log = apis.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name, request.model_spec.signature_name = "m", "classify"
    request.inputs["bytes"].CopyFrom(tf.make_tensor_proto([image] * 20))
    assert records(tmp_path) == [log.SerializeToString(deterministic=True)]
