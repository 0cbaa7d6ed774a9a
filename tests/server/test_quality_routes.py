"""Qualities, and comparisons of pairs, in every format and for clients that ask."""

import grpc
import numpy as np
import pytest
import server_tools
import tensorflow as tf
from server_tools import PLSC, ask, b64, export, picture, served
from tensorflow_serving.apis import prediction_service_pb2_grpc

from plsc_tf.data.alignment import REFERENCE
from plsc_tf.serving.client import Client, ServiceError
from plsc_tf.serving.evaluation_card import EvaluationCard
from plsc_tf.serving.export import Extras
from tests import detectors

# An LLR of 10 times the cosine, and a threshold.
CALIBRATION = {"method": "logistic", "prior": 0.5, "cosines": [-1, 1]}
CALIBRATION |= {"llrs": [-10, 10]}
CALIBRATION["groups"] = {"masks": {"cosines": [-1, 1], "llrs": [-5, 5]}}
LIMIT = {"far": 0.01, "cosine": 0.9, "squared_l2": 0.2, "calibration": CALIBRATION}
PICTURES = tuple(picture(seed) for seed in range(100))


@pytest.fixture(scope="module")
def rating(tmp_path_factory):
    """A server with a gallery and a detector, whose model rates and compares."""
    folder = tmp_path_factory.mktemp("rating")
    card = EvaluationCard("", {"sets": {"lfw": {"threshold": LIMIT}}}, None)
    export(folder / "face", 1, Extras(validation=PICTURES, card=card))
    options = {"detect": "tests.detectors:detect", "gallery_dir": str(folder / "all")}
    with served(folder / "face", **options, grpc_port=0) as found:
        yield found


@pytest.fixture
def address(rating):
    return f"127.0.0.1:{rating['port']}"


def test_the_client_returns_qualities(address, server):
    client = Client(address, batch_images=40)
    rows, qualities = client.encode_with_quality(PICTURES)
    np.testing.assert_allclose(rows, client.encode(PICTURES), atol=1e-5)
    ranks = np.linalg.norm(rows, axis=1).argsort().argsort() / 99
    np.testing.assert_allclose(qualities, ranks, atol=0.01)
    client = Client(f"127.0.0.1:{server['port']}")
    with pytest.raises((ServiceError, ValueError), match="qualities|signatures"):
        client.encode_with_quality(PICTURES[:2])


def test_answers_have_the_quality(address, monkeypatch):
    body = {"base64_string": [b64(one) for one in PICTURES[:2]]}
    _, expected = Client(address).encode_with_quality(PICTURES[:2])
    port = {"port": int(address.rpartition(":")[2])}
    for path, key in ((PLSC, "embedding"), ("/gallery/identify", "candidates")):
        _, answer, _ = ask(port, "POST", path, body)
        assert key in answer["instance"][0]
        found = [one["quality"] for one in answer["instance"]]
        assert found == pytest.approx(expected.tolist(), abs=1e-3)
    monkeypatch.setattr(detectors, "faces", {301: [REFERENCE + 50]})
    ((face,),) = Client(address).encode_faces([picture(0, (301, 260))])
    assert 0 <= face["quality"] <= 1 and face["embedding"].shape == (8,)


def test_pairs_are_compared_in_every_format(rating, address):
    client, path = Client(address), "/v1/models/face:predict"
    rows = client.encode(PICTURES[:3]).astype(np.float64)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = np.sum(unit[:2] * unit[1:], axis=1)
    found = client.verify(*PICTURES[:2])
    assert found["score"] == pytest.approx(cosines[0], abs=1e-5)
    assert found["llr"] == pytest.approx(10 * found["score"], abs=1e-9)
    assert found["group_llrs"] == pytest.approx([5 * found["score"]], abs=1e-9)
    assert found["decision"] is bool(cosines[0] > 0.9)
    texts = [{"b64": b64(one)} for one in PICTURES[:3]]
    pairs, body = [texts[:2], texts[1:]], {"signature_name": "verify"}
    _, answer, _ = ask(rating, "POST", path, {**body, "inputs": {"bytes": pairs}})
    assert answer["outputs"]["score"] == pytest.approx(cosines, abs=1e-5)
    with grpc.insecure_channel(f"127.0.0.1:{rating['grpc_port']}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = server_tools.predict_request([PICTURES[:2], PICTURES[1:3]], **body)
        outputs = stub.Predict(request, 20).outputs
        assert tf.make_ndarray(outputs["score"]) == pytest.approx(cosines, abs=1e-5)
    assert "calibration" not in ask(rating, "GET", "/gallery")[1]["threshold"]
    zeros = {"signature_name": "verify_embeddings", "instances": [[[0] * 8] * 2]}
    for asked, told in (
        ({**body, "instances": [texts]}, "must be a list of two images"),
        ({**body, "instances": [[texts[0], {"b64": b64(b"no")}]]}, "Image 1 is not a"),
        (zeros, "embeddings must be finite, and none may be all zeros"),
    ):
        status, answer, _ = ask(rating, "POST", path, asked)
        assert status == 400 and told in answer["error"]
