"""Every interface gives the model's embeddings, in the form that is documented."""

import json

import grpc
import numpy as np
import pytest
import tensorflow as tf
from server_tools import PLSC, ask, b64, picture, predict_request
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
)

from plsc_tf.serving.server import rest
from plsc_tf.serving.server.errors import RequestError

PREDICT, ENROL = "/v1/models/face:predict", "/gallery/enrol"
FACE, IMAGES = {"model_spec": {"name": "face"}}, {"signature_name": "images"}
CUT, NONE = b64(picture(0)[:-200]), {"base64_string": []}
ONE = {"base64_string": ["aGk="]}


def close_to(expected):
    return pytest.approx(expected, abs=1e-5)


def test_plsc(server, pictures, expected):
    body = {"base64_string": [b64(one) for one in pictures]}
    status, answer, _ = ask(server, "POST", PLSC, body)
    assert status == 200
    assert list(answer) == ["instance", "model"]
    assert [list(row) for row in answer["instance"]] == [["embedding"]] * 3
    found = np.array([row["embedding"] for row in answer["instance"]])
    assert found == close_to(expected)


def test_forms_of_rest(server, pictures, expected):
    values = [{"b64": b64(one)} for one in pictures]
    named, column = [{"bytes": one} for one in values], {"inputs": values}
    first = "/v1/models/face/versions/1:predict"
    for path, body, key in (
        (PREDICT, {"instances": values}, "predictions"),
        (PREDICT, {"instances": named}, "predictions"),
        (first, {**column, "signature_name": "serving_default"}, "outputs"),
        (first, {"inputs": {"bytes": values}}, "outputs"),
    ):
        status, answer, _ = ask(server, "POST", path, body)
        assert (status, list(answer)) == (200, [key]), answer
        assert np.array(answer[key]) == close_to(expected)


def test_float_images(server, model_dir):
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 12, 3))
    body = {**IMAGES, "instances": images.tolist()}
    status, answer, _ = ask(server, "POST", PREDICT, body)
    assert status == 200, answer
    run = tf.saved_model.load(str(model_dir / "1")).signatures["images"]
    expected = run(tf.constant(images, tf.float32))["embedding"].numpy()
    assert np.array(answer["predictions"]) == close_to(expected)


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(f"127.0.0.1:{server['grpc_port']}") as channel:
        yield channel


@pytest.fixture
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def test_grpc(stub, pictures, expected):
    # Nothing here knows plsc_tf: the client of TF Serving's own documentation.
    request = predict_request(pictures, signature_name="serving_default")
    response = stub.Predict(request, 20)
    found = tf.make_ndarray(response.outputs["embedding"])
    assert found.dtype == np.float32
    assert found == close_to(expected)
    assert response.model_spec.name == "face"
    assert response.model_spec.version.value == 1
    assert response.model_spec.signature_name == "serving_default"

    images = np.random.default_rng(0).uniform(0, 255, (2, 16, 12, 3))
    spec = {"signature_name": "images", "version": {"value": 1}}
    request = predict_request(images.astype(np.float32), "images", **spec)
    outputs = stub.Predict(request, 20).outputs
    assert tf.make_ndarray(outputs["embedding"]).shape == (2, 8)


def shaped(values, shape):
    """A tensor whose shape need not fit its values."""
    tensor = tf.make_tensor_proto(values)
    tensor.tensor_shape.ClearField("dim")
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    return tensor


# One value that stands for many: a few bytes that would become gigabytes.
MANY = {"values": shaped([0.5], [10**9, 1, 1, 1]), "input_name": "images"}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"name": "half"}, "NOT_FOUND", "Latest\\(half\\)"),
        ({"version": {"value": 7}}, "NOT_FOUND", "Specific\\(face, 7\\)"),
        ({"version_label": "gold"}, "INVALID_ARGUMENT", "label: gold"),
        ({"signature_name": "x"}, "INVALID_ARGUMENT", "signatures are .*'x'"),
        ({"input_name": "x"}, "INVALID_ARGUMENT", "inputs must be \\['bytes'\\]"),
        ({"values": [1.0]}, "INVALID_ARGUMENT", "bytes must .* string.*DT_FLOAT"),
        ({"values": ["x"]}, "INVALID_ARGUMENT", "Image 0 is not"),
        ({"output_filter": ["loss"]}, "INVALID_ARGUMENT", "may contain.*loss"),
        ({**MANY, **IMAGES}, "INVALID_ARGUMENT", "too few values"),
        ({"values": shaped("x", [1] * 10)}, "INVALID_ARGUMENT", "shape \\[None\\]"),
        ({"values": shaped("x", [10**9])}, "INVALID_ARGUMENT", "too few values"),
    ],
)
def test_refusals_of_grpc(stub, pictures, change, code, words):
    with pytest.raises(grpc.RpcError, match=words) as caught:
        stub.Predict(predict_request(**{"values": pictures[:1], **change}), 20)
    assert caught.value.code().name == code


def test_status_and_metadata(server, channel, stub):
    status, answer, _ = ask(server, "GET", "/v1/models/face")
    fine = {"error_code": "OK", "error_message": ""}
    only = {"version": "1", "state": "AVAILABLE", "status": fine}
    assert (status, answer) == (200, {"model_version_status": [only]})
    states = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest(**FACE)
    (one,) = states.GetModelStatus(request, 20).model_version_status
    assert (one.version, one.state) == (1, 30)  # ModelVersionStatus.AVAILABLE

    status, answer, _ = ask(server, "GET", "/v1/models/face/metadata")
    assert status == 200
    spec = {"name": "face", "signature_name": "", "version": "1"}
    assert answer["model_spec"] == spec
    # Longer ones would make each of these requests stop all others.
    assert answer["permitted_use"] == "unknown" and len(answer["origins"]) == 9999
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    default = signatures["serving_default"]
    assert default["inputs"]["bytes"]["dtype"] == "DT_STRING"
    assert default["method_name"] == "tensorflow/serving/predict"
    dims = default["outputs"]["embedding"]["tensor_shape"]["dim"]
    assert [dim["size"] for dim in dims] == ["-1", "8"]

    request = get_model_metadata_pb2.GetModelMetadataRequest(**FACE)
    request.metadata_field.append("signature_def")
    found = get_model_metadata_pb2.SignatureDefMap()
    assert stub.GetModelMetadata(request, 20).metadata["signature_def"].Unpack(found)
    assert set(found.signature_def) == set(signatures)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", PREDICT, "{", 400, "JSON Parse error"),
        ("POST", PREDICT, "", 400, "empty"),
        ("POST", PREDICT, "[1]", 400, "not an object"),
        ("POST", PREDICT, '{"a": [NaN]}', 400, "JSON Parse error"),
        ("POST", PREDICT, {"instances": []}, 400, "at least one item"),
        ("POST", PREDICT, {"instances": 3}, 400, "at least one item"),
        ("POST", PREDICT, {"instances": ["a"], "inputs": []}, 400, "either"),
        ("POST", PREDICT, {"instances": ["a"] * 41}, 413, "at most 40 images"),
        ("POST", PREDICT, {"instances": [{"b64": "*"}]}, 400, "must be a string or"),
        ("POST", PREDICT, {"instances": [{"b64": "aGk="}]}, 400, "Image 0 is not"),
        ("POST", PREDICT, {"instances": [["a"]]}, 400, "must be a string or"),
        ("POST", PREDICT, {"instances": [{"x": 1}]}, 400, "the key 'bytes'"),
        ("POST", PREDICT, {"inputs": {"x": 1}}, 400, "the key 'bytes'"),
        ("POST", PREDICT, {"signature_name": 3}, 400, "must be a string"),
        ("POST", PREDICT, {"signature_name": "no"}, 400, "signatures are"),
        ("POST", PREDICT, {**IMAGES, "instances": [[1]]}, 400, "[None, 16, 12, 3]"),
        ("POST", PREDICT, {**IMAGES, "instances": [{"x": 1}]}, 400, "key 'images'"),
        ("POST", "/v1/models/half:predict", {}, 404, "Latest(half)"),
        ("POST", "/v1/models/face/versions/9:predict", {}, 404, "Specific(face, 9)"),
        ("POST", "/v1/models/face:classify", {}, 400, "Malformed request: POST"),
        ("POST", "/v1/models/face", {}, 400, "Malformed request: POST"),
        ("GET", "/v1/models/half", None, 404, "half"),
        ("GET", "/v1/models/face/versions/9", None, 404, "9"),
        ("GET", "/nowhere", None, 404, ""),
        ("GET", PLSC, None, 405, ""),
        ("POST", PLSC, {"base64_string": "x"}, 400, "base64_string"),
        ("POST", PLSC, NONE, 400, "no image"),
        ("POST", PLSC, {"base64_string": ["*"]}, 400, "Item 0"),
        ("POST", PLSC, {"base64_string": [CUT]}, 400, "Invalid JPEG data"),
        ("POST", ENROL, ONE, 400, "name"),
        ("POST", ENROL, {**ONE, "name": ""}, 400, "name"),
        ("POST", ENROL, {**NONE, "name": "x"}, 400, "no image"),
        ("POST", ENROL, {**ONE, "name": "x"}, 400, "Image 0"),
        ("POST", "/gallery/identify", {**ONE, "count": 0}, 400, "count"),
        ("POST", "/gallery/identify", {**ONE, "threshold": "high"}, 400, "threshold"),
        ("POST", "/gallery/remove", {"name": 3}, 400, "name"),
    ],
)
def test_refusals_of_http(server, method, path, body, status, words):
    found, answer, _ = ask(server, method, path, body)
    assert found == status
    assert list(answer) == ["error"]
    assert words in answer["error"]


@pytest.mark.parametrize("value", ["1", True, 10**400])
def test_only_numbers_are_numbers(value):
    with pytest.raises(RequestError, match="must have the dtype float32|JSON Parse"):
        body = json.dumps({"inputs": [[value]]})
        one = "serving_default", "x", np.dtype("float32"), [None, 1]
        rest.read_inputs(body.encode(), lambda signature: one, 1)
