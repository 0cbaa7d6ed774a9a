"""Small requests that would cost the server much are refused before they cost it."""

import gzip
import json
import shutil

import grpc
import pytest
from server_tools import ask, b64, served
from tensorflow_serving.apis import predict_pb2

PLSC = "/FaceClassifyService/inference"
PREDICT = "/v1/models/face:predict"
LISTS = b"[]" + b",[]" * 300_000
NUMBERS = b'{"signature_name": "images", "instances": [%s]}'


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        # Only a kilobyte when compressed, but parsing it would block all requests.
        (PREDICT, NUMBERS % LISTS, 413),
        (PREDICT, b'{"instances": [%s]}' % LISTS, 413),
        (PLSC, b'{"base64_string": [%s]}' % LISTS, 413),
        (PLSC, b'{"name": NaN%s}' % (b',"a":0' * 110_000), 413),
        (PREDICT, NUMBERS % (b"[0,[0]]," * 20_000 + b"0"), 400),
        # numpy would give each of these strings 400 KB: gigabytes of memory.
        (PREDICT, NUMBERS % (b'"%s"' % (b"a" * 100_000) + b',""' * 20_000), 400),
    ],
)
def test_costly_json_is_refused(server, path, body, status):
    packed = gzip.compress(body)
    found, answer, _ = ask(server, "POST", path, packed, {"Content-Encoding": "gzip"})
    assert (found, list(answer)) == (status, ["error"])


def test_honest_numbers_and_broken_lines_of_base64_are_answered(server, pictures):
    rows = [[[[0.25, 1, 2.0]] * 12] * 16] * 40  # the most images of a request
    body = {"signature_name": "images", "instances": rows}
    assert ask(server, "POST", PREDICT, body)[0] == 200
    lines = "\r\n".join(b64(pictures[0]))
    assert ask(server, "POST", PLSC, {"base64_string": [lines]})[0] == 200


def test_grpc_names_what_is_wrong_and_repeats_nothing(server, pictures):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "face"
    request.inputs["bytes"].dtype = 7  # DT_STRING
    request.inputs["bytes"].tensor_shape.dim.add(size=1)
    request.inputs["bytes"].string_val.append(pictures[0])
    # Each name would be an output more to convert: seconds for 60,000 names.
    request.output_filter.extend(["embedding"] * 60_000)
    with grpc.insecure_channel(f"127.0.0.1:{server['grpc_port']}") as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        assert call(request.SerializeToString(), 20)
        request.inputs["bytes"].dtype = 999  # A traceback for each request fills disks.
        with pytest.raises(grpc.RpcError, match="must be string. Received") as caught:
            call(request.SerializeToString(), 20)
    assert caught.value.code().name == "INVALID_ARGUMENT"


def test_no_error_repeats_a_long_request(server):
    # The log's reader and the client's memory are the attacker's, if texts are echoed.
    body = json.dumps({"signature_name": "x" * 100_000, "instances": [0]})
    status, answer, _ = ask(server, "POST", PREDICT, body)
    assert status == 400 and len(answer["error"]) <= 500
    answer = ask(server, "GET", "/v1/" + "x" * 5000)[1]
    assert len(answer["error"]) <= 200


def test_broken_newest_versions_hide_no_sound_one(model_dir, tmp_path):
    # Who can add broken folders would keep the server from starting again.
    folder = tmp_path / "face"
    shutil.copytree(model_dir, folder)
    for version in range(9, 34):
        (folder / str(version)).mkdir()
        (folder / str(version) / "saved_model.pb").write_bytes(b"rubbish")
    with served(folder) as server:
        status, answer, _ = ask(server, "GET", "/healthz")
        assert (status, answer["status"]) == (200, "serving")
        assert sorted(map(int, answer["failed"])) == [*range(14, 34)]
        metrics = ask(server, "GET", "/metrics")[1]
        assert "plsc_tf_model_version 1.0" in metrics
        assert 'plsc_tf_model_loads_total{result="failed"} 25.0' in metrics
