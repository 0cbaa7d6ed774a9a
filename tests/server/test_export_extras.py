"""What an export brings for a server: warm-up requests, classes, a threshold."""

import json

import grpc
import keras
import pytest
import tensorflow as tf
from server_tools import ask, b64, picture, served
from tensorflow_serving.apis import prediction_log_pb2, prediction_service_pb2_grpc

import plsc_tf
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.serving.export import Extras, export_saved_model
from tests.networks import flat

THRESHOLD = {"far": 1e-3, "squared_l2": 0.00002, "cosine": 0.99999}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With `classify`, and a card whose threshold only the same picture passes."""
    folder = tmp_path_factory.mktemp("extras")
    backbone = flat((8, 8, 3), keras.layers.Dense(6))
    model = plsc_tf.Classifier(backbone, plsc_tf.ShardedHead(num_classes=5))
    sets = {"people": {"threshold": THRESHOLD}}
    path = folder / "card.json"
    path.write_text(json.dumps({"version": 1, "sets": sets}))
    options = {"classes": 2, "extras": Extras(card=EvaluationCard.read(str(path)))}
    export_saved_model(model, folder / "face", image_size=(8, 8), **options)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    options = {"grpc_port": 0, "gallery_dir": str(folder / "people")}
    with served(folder / "face", **options) as server:
        yield server


def test_the_warm_up_requests_are_answered(folder, server):
    path = folder / "face/1/assets.extra/tf_serving_warmup_requests"
    with grpc.insecure_channel(f"127.0.0.1:{server['grpc_port']}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        found = []
        for raw in tf.data.TFRecordDataset([str(path)]).as_numpy_iterator():
            log = prediction_log_pb2.PredictionLog.FromString(raw)
            answer = stub.Predict(log.predict_log.request, timeout=60)
            shapes = {k: tf.make_ndarray(v).shape for k, v in answer.outputs.items()}
            found.append((answer.model_spec.signature_name, shapes))
    assert found == [
        ("serving_default", {"embedding": (1, 6)}),
        ("serving_default", {"embedding": (32, 6)}),
        ("classify", {"classes": (1, 2), "scores": (1, 2)}),
    ]


def test_the_threshold_of_the_card_counts_unless_another_is_given(server):
    def identify(**more):
        body = {"base64_string": [b64(picture(1)), b64(picture(2))], **more}
        status, answer, _ = ask(server, "POST", "/gallery/identify", body)
        assert status == 200
        counts = [len(one["candidates"]) for one in answer["instance"]]
        return counts, answer["threshold"]

    face = {"name": "a", "base64_string": [b64(picture(1))]}
    assert ask(server, "POST", "/gallery/enrol", face)[0] == 200
    assert identify() == ([1, 0], 0.99999)
    assert identify(threshold=-1) == ([1, 1], -1)
    assert identify(threshold=None) == ([1, 1], None)
    about = ask(server, "GET", "/gallery")[1]
    assert about["threshold"] == {"set": "people", **THRESHOLD}
