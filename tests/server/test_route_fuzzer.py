"""No request, however damaged, ends the server, its answers or its memory."""

import concurrent.futures
import copy
import functools
import http.client
import json
import pathlib
import random
import select
import socket

import grpc
import numpy as np
import pytest
import server_tools as tools
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest

from tests.fuzz.mutations import change_json, mutate
from tests.marks import slow

PREDICT = "/v1/models/face:predict"
MODEL = "/v1/models/face"
GETS = ("/healthz", "/metrics", "/gallery", MODEL, f"{MODEL}/metadata")
HEADERS = (
    *(b"Content-Length: 7", b"Content-Length: -1", b"Content-Length: 9" + b"9" * 30),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked"),
    *(b"Content-Encoding: gzip", b"Content-Encoding: deflate", b"Content-Encoding: br"),
    *(b"Connection: upgrade\r\nUpgrade: websocket", b"Connection: close, keep-alive"),
    *(b"Expect: 100-continue", b"Expect: x", b"Host: \xff", b"X" * 9000, b": y", b""),
    *(b"Content-Type: text/html; charset=\xff", b"Accept: text/html", b"Cookie: a=\0"),
)


def posts(pictures):
    """Good requests, (path, JSON)."""
    texts = [tools.b64(one) for one in pictures]
    image = np.zeros((1, 16, 12, 3), int).tolist()
    return [
        (tools.PLSC, {"base64_string": texts}),
        (PREDICT, {"instances": [{"b64": text} for text in texts]}),
        (PREDICT, {"instances": [{"bytes": {"b64": texts[0]}}]}),
        (PREDICT, {"inputs": {"bytes": texts}}),
        ("/v1/models/face/versions/1:predict", {"inputs": [{"b64": texts[0]}]}),
        (PREDICT, {"signature_name": "images", "instances": image}),
        ("/gallery/enrol", {"name": "ada", "base64_string": texts[:1]}),
        ("/gallery/identify", {"base64_string": texts, "count": 2, "threshold": 0.4}),
        ("/gallery/remove", {"name": "ada"}),
    ]


def protos(pictures):
    """Good requests, (method, message)."""
    images = tools.predict_request(pictures, "bytes", ["embedding"])
    zeros = np.zeros((1, 16, 12, 3), np.float32)
    numbers = tools.predict_request(zeros, "images", signature_name="images")
    face = {"model_spec": {"name": "face"}}
    about = GetModelMetadataRequest(**face, metadata_field=["signature_def"])
    named = [
        ("PredictionService/Predict", images),
        ("PredictionService/Predict", numbers),
        ("PredictionService/GetModelMetadata", about),
        ("ModelService/GetModelStatus", GetModelMetadataRequest(**face)),
    ]
    return [(name, message.SerializeToString()) for name, message in named]


def http_request(rng, good):
    """The bytes of a request that is damaged in one of its layers."""
    if rng.random() < 0.2:
        data = f"GET {rng.choice(GETS)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        return mutate(data, rng)
    path, value = copy.deepcopy(rng.choice(good))
    layer = rng.randrange(4)
    if layer == 0:
        change_json(value, rng)
    body = json.dumps(value).encode()
    body = mutate(body, rng) if layer == 1 else body
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
    head += b"Content-Type: application/json\r\n"
    if layer == 2:
        head += rng.choice(HEADERS) + b"\r\n"
    if rng.random() < 0.2:
        cut = rng.randrange(len(body) + 1)
        parts = [part for part in (body[:cut], body[cut:]) if part]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
        data = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    else:
        data = head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    return mutate(data, rng) if layer == 3 else data


def answer_to(port, data):
    """(status, body) of the first answer, or None."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        try:
            link.sendall(data)
            if not select.select([link], [], [], 0.2)[0]:
                # It waits for the rest of the request, or computes.
                link.shutdown(socket.SHUT_WR)
            link.settimeout(30)
            response = http.client.HTTPResponse(link)
            response.begin()
            return response.status, response.read()
        except (OSError, http.client.HTTPException):
            return None


def wrong_http(port, good, number):
    """Sends a request; returns what is wrong with its answer, or None."""
    answer = answer_to(port, http_request(random.Random(number), good))
    if answer is None or answer[0] < 400:
        return None
    status, body = answer
    if status >= 500 and status not in (503, 504):
        return number, status, body[:300]
    try:
        assert not body or list(json.loads(body)) == ["error"]
        assert len(body) < 4096
    except (AssertionError, ValueError):
        return number, status, body[:300]
    return None


def wrong_grpc(channel, good, number):
    """The same for gRPC."""
    rng = random.Random(number)
    method, data = rng.choice(good)
    try:
        channel.unary_unary(f"/tensorflow.serving.{method}")(mutate(data, rng), 30)
    except grpc.RpcError as error:
        code, details = error.code().name, error.details()
        right = {"INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "DEADLINE_EXCEEDED"}
        if code not in right or len(details) > 4096:
            return number, code, details[:300]
    return None


@pytest.fixture(scope="module")
def fuzzed(model_dir):
    """A server whose log is read afterwards."""
    folder = model_dir.with_name("fuzzed")
    folder.symlink_to(model_dir)
    limits = ["--max_body_mb=1", "--receive_timeout=3", "--served_name=face"]
    with tools.running(folder, f"--gallery_dir={folder}_people", *limits) as server:
        yield server | {"log": pathlib.Path(f"{folder}.log")}


@pytest.mark.parametrize(("count", "seed"), [(400, 1), slow(100_000, 2)])
def test_damaged_requests(fuzzed, pictures, expected, count, seed):
    start = seed * 10**7
    with (
        tools.asking(fuzzed, pictures) as answers,
        grpc.insecure_channel(f"127.0.0.1:{fuzzed['grpc_port']}") as channel,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        http = functools.partial(wrong_http, fuzzed["port"], posts(pictures))
        rpc = functools.partial(wrong_grpc, channel, protos(pictures))
        for check in (http, rpc):
            list(pool.map(check, range(200)))
        before = tools.resources(fuzzed)[0]
        wrong = [*pool.map(http, range(start, start + 3 * count // 4))]
        wrong += pool.map(rpc, range(start, start + count // 4))
    assert [one for one in wrong if one] == []
    tools.assert_right(answers, expected)
    assert tools.ask(fuzzed, "GET", "/healthz")[0] == 200
    # Both ways are taken everywhere.
    metrics = tools.ask(fuzzed, "GET", "/metrics")[1]
    for interface in ("plsc", "rest", "gallery", "grpc"):
        good, bad = ("OK", "INVALID_ARGUMENT") if interface == "grpc" else (200, 400)
        assert f'interface="{interface}",status="{good}"' in metrics
        assert f'interface="{interface}",status="{bad}"' in metrics
    assert "Traceback" not in fuzzed["log"].read_text()
    # Memory does not grow.
    tools.wait_for(lambda: tools.resources(fuzzed)[0] < before + 64)
