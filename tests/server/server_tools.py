"""What the tests of the server share: a server process, pictures, requests."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
from PIL import Image

from plsc_tf.data.images import encode
from tests.waiting import wait_for as wait_for

EMBEDDING_SIZE = 8
PLSC = "/FaceClassifyService/inference"


@contextlib.contextmanager
def running(folder, *options):
    """A server process; yields a dict with its ports and process.

    SIGTERM ends it with status 0.
    """
    log = open(f"{folder}.log", "a", encoding="utf8")
    command = [sys.executable, "-m", "plsc_tf.serve", f"--model_dir={folder}"]
    command += ["--port=0", "--grpc_port=0", "--poll_seconds=0.1", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        ports = dict(re.findall(r"(\w*port)=(\d+)", process.stdout.readline()))
        assert ports, pathlib.Path(log.name).read_text()[-2000:]
        yield {"process": process, **{name: int(ports[name]) for name in ports}}
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
    assert process.returncode == 0


@contextlib.contextmanager
def served(folder, **options):
    """A server in this process; yields a dict with its ports and the `PLSCServer`."""
    from plsc_tf.serving.plsc_server import PLSCServer

    server = PLSCServer(poll_seconds=0.05, **options).with_model(folder)
    server.run(port=0, block=False)
    try:
        yield {"server": server, "port": server.port, "grpc_port": server.grpc_port}
    finally:
        server.stop()


def resources(server):
    """(resident megabytes, open files) of the server."""
    pid = server["process"].pid
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    rss = int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024
    return rss, len(os.listdir(f"/proc/{pid}/fd"))


def connect(server, data=b"", port="port"):
    """A connection to a port of the server, which has sent some bytes."""
    link = socket.create_connection(("127.0.0.1", server[port]), timeout=20)
    link.sendall(data)
    return link


def narrow(server):
    """A connection of which the kernel keeps few bytes that are not read."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    link.connect(("127.0.0.1", server["port"]))
    return link


def is_listened_at(port):
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def export(folder, seed, extras=None, size=(16, 12)):
    """Writes a version of a small network with weights of its own."""
    import keras

    from plsc_tf.serving.export import export_saved_model

    inputs = keras.Input((*size, 3))
    dense = keras.layers.Dense(EMBEDDING_SIZE)
    model = keras.Model(inputs, dense(keras.layers.Flatten()(inputs / 255)))
    dense.kernel.assign(np.random.default_rng(seed).normal(0, 0.1, dense.kernel.shape))
    card = {"permitted_use": "unknown", "origins": ["faces"] * 5000}
    return export_saved_model(model, folder, model_card=card, extras=extras)


def picture(seed, size=(20, 30), file_format="JPEG"):
    """Bytes of a picture."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
    return encode(small.resize(size, Image.Resampling.BICUBIC), file_format)


def direct(folder, pictures):
    """Embeddings by the SavedModel, called in this process."""
    import tensorflow as tf

    run = tf.saved_model.load(str(folder)).signatures["serving_default"]
    return run(tf.constant(pictures))["embedding"].numpy()


def ask(server, method, path, body=None, headers=None):
    """(status, JSON or text of the answer, its headers)."""
    place = "127.0.0.1", server["port"]
    connection = http.client.HTTPConnection(*place, timeout=20)
    if tls := server.get("tls"):
        connection = http.client.HTTPSConnection(*place, timeout=20, context=tls)
    try:
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers = {"Content-Type": "application/json"} | (headers or {})
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        data = response.read()
        if response.headers.get_content_type() == "application/json":
            return response.status, json.loads(data), response.headers
        return response.status, data.decode(), response.headers
    finally:
        connection.close()


@contextlib.contextmanager
def asking(server, pictures, callers=1):
    """Asks for embeddings until the end; yields the list of (status, embeddings)."""
    body = {"base64_string": [b64(one) for one in pictures]}
    answers, ended = [], threading.Event()

    def ask_on():
        while not ended.wait(0.01):
            status, answer, _ = ask(server, "POST", PLSC, body)
            rows = [row["embedding"] for row in answer.get("instance", ())]
            answers.append((status, np.array(rows)))

    with concurrent.futures.ThreadPoolExecutor(callers) as pool:
        calls = [pool.submit(ask_on) for _ in range(callers)]
        try:
            yield answers
        finally:
            ended.set()
    for call in calls:
        call.result()


def assert_right(answers, expected):
    """Callers of `asking` must not notice what others send."""
    for status, rows in answers:
        assert status == 200
        np.testing.assert_allclose(rows, expected, atol=1e-5)


def predict_request(values, input_name="bytes", output_filter=(), **spec):
    """TF Serving's request for the outputs of `face`, or of the model of `spec`."""
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2

    return predict_pb2.PredictRequest(
        model_spec={"name": "face", **spec},
        inputs={input_name: tf.make_tensor_proto(values)},
        output_filter=output_filter,
    )


def b64(data):
    """Text in base64."""
    return base64.b64encode(data).decode()
