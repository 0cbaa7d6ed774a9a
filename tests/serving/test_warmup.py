"""TF Serving's warm-up requests, read by its own messages."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.serving import warmup
from plsc_tf.serving.export import export_saved_model
from tests.serving.tiny import SIZE, network


def records(folder):
    path = pathlib.Path(folder, "assets.extra", "tf_serving_warmup_requests")
    return [raw.numpy() for raw in tf.data.TFRecordDataset([str(path)])]


def test_requests_are_prediction_logs_that_the_model_answers(tmp_path):
    apis = pytest.importorskip(
        "tensorflow_serving.apis.prediction_log_pb2",
        reason="needs pip install 'plsc_tf[serving]'",
    )
    folder = export_saved_model(network(), tmp_path / "face")
    loaded = tf.saved_model.load(folder)
    counts = []
    for raw in records(folder):
        log = apis.PredictionLog.FromString(raw)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        assert request.model_spec.name == "face"
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        signature = loaded.signatures[request.model_spec.signature_name]
        outputs = signature(bytes=tf.constant(inputs["bytes"]))
        assert np.isfinite(outputs["embedding"]).all()
        counts.append(len(inputs["bytes"]))
    assert counts == [1, 32]
    picture = tf.io.decode_jpeg(inputs["bytes"][0])
    assert picture.shape == (*SIZE, 3)


def test_the_same_bytes_as_tensorflow_serving_api_writes(tmp_path):
    apis = pytest.importorskip(
        "tensorflow_serving.apis.prediction_log_pb2",
        reason="needs pip install 'plsc_tf[serving]'",
    )
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    warmup.write(str(tmp_path), "m", [("images", {"images": value})])
    log = apis.PredictionLog()
    request = log.predict_log.request
    request.model_spec.name, request.model_spec.signature_name = "m", "images"
    request.inputs["images"].CopyFrom(tf.make_tensor_proto(value))
    assert records(tmp_path) == [log.SerializeToString(deterministic=True)]
