"""TF Serving's warm-up requests, read by its own messages."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.serving import warmup
from tests.serving.tiny import SIZE

apis = pytest.importorskip(
    "tensorflow_serving.apis.prediction_log_pb2",
    reason="needs pip install 'plsc_tf[serving]'",
)


def records(folder):
    path = pathlib.Path(folder, "assets.extra", "tf_serving_warmup_requests")
    return [raw.numpy() for raw in tf.data.TFRecordDataset([str(path)])]


def test_requests_are_prediction_logs_that_the_model_answers(exported):
    _, folder = exported
    loaded = tf.saved_model.load(folder)
    counts = []
    for raw in records(folder):
        log = apis.PredictionLog.FromString(raw)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        assert request.model_spec.name == "face"
        encoded = tf.make_ndarray(request.inputs["bytes"])
        signature = loaded.signatures[request.model_spec.signature_name]
        outputs = signature(bytes=tf.constant(encoded))
        assert np.isfinite(outputs["embedding"]).all()
        counts.append(len(encoded))
    assert counts == [1, 32]
    assert tf.io.decode_jpeg(encoded[0]).shape == (*SIZE, 3)


def test_the_same_bytes_as_tensorflow_serving_api_writes(tmp_path):
    value = np.arange(600, dtype=np.float32).reshape(200, 3)
    warmup.write(str(tmp_path), "m", [("images", {"images": value})])
    log = apis.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name, request.model_spec.signature_name = "m", "images"
    request.inputs["images"].CopyFrom(tf.make_tensor_proto(value))
    assert records(tmp_path) == [log.SerializeToString(deterministic=True)]
