"""SIGTERM: what has begun is answered, then the process ends with status 0."""

import json
import signal
import socket
import threading

import grpc
import numpy as np
import tensorflow as tf
from bad_requests import post
from server_tools import b64, running
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc


def test_what_has_begun_is_answered(model_dir, pictures, expected):
    with running(model_dir) as server:
        request = post(
            json.dumps({"base64_string": [b64(one) for one in pictures] * 40}).encode()
        )
        links = [
            socket.create_connection(("127.0.0.1", server["port"]), timeout=30)
            for _ in range(8)
        ]
        for link in links:
            link.sendall(request[:-5])
        found = []
        thread = threading.Thread(target=call, args=(server, pictures, found))
        thread.start()
        thread.join()
        server["process"].send_signal(signal.SIGTERM)
        # Their bodies end only now.
        for link in links:
            link.sendall(request[-5:])
        answers = [read(link) for link in links]
        assert server["process"].wait(30) == 0
        for link in links:
            link.close()
    for status, answer in answers:
        assert status == 200
        rows = [row["embedding"] for row in answer["instance"]]
        np.testing.assert_allclose(rows[:3], expected, atol=1e-5)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    # Nobody listens any more.
    with socket.socket() as link:
        assert link.connect_ex(("127.0.0.1", server["port"])) != 0


def call(server, pictures, found):
    with grpc.insecure_channel(f"127.0.0.1:{server['grpc_port']}") as channel:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "face"
        request.inputs["bytes"].CopyFrom(tf.make_tensor_proto(pictures))
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        found.append(tf.make_ndarray(stub.Predict(request, 30).outputs["embedding"]))


def read(link):
    data = b""
    while part := link.recv(1 << 16):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    return int(head[9:12]), json.loads(body)
