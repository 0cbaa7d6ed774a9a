"""The client finds a server that answers, in PLSC's format or TF Serving's."""

import concurrent.futures
import contextlib
import http.server
import json
import os
import socket
import threading

import numpy as np
import pytest
from server_tools import PLSC, picture

from plsc_tf.parallel.addresses import free_addresses
from plsc_tf.serving.client import Client, FaceService, ServiceError


def test_as_in_plsc(server, pictures, expected):
    service = FaceService().connect(f"127.0.0.1:{server['port']}")
    result = service.encode(pictures)
    service.close()
    assert isinstance(result, list)
    assert isinstance(result[0][0], float)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    # Closed connections are opened again.
    np.testing.assert_allclose(service.encode(pictures[:1]), expected[:1], atol=1e-5)
    service.close()


def test_lists_are_sent_in_parts(server, pictures, expected):
    with Client(f"127.0.0.1:{server['port']}", batch_images=2) as client:
        result = client.encode(pictures)
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, expected, atol=1e-5)
        assert client.encode([]).shape[0] == 0


@contextlib.contextmanager
def listening(handler):
    """A server of the standard library with this handler of POST."""
    paths = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            status, answer, headers = handler(self.path, json.loads(body))
            data = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": len(data)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", paths
        finally:
            server.shutdown()
            thread.join()


def like_tensorflow_serving(path, body):
    """What TF Serving's documentation says: this path, {"error"} for all others."""
    if path != "/v1/models/people:predict":
        return 404, {"error": f"Malformed request: POST {path}"}, {}
    assert [list(row) for row in body.pop("instances")] == [["b64"]]
    rated = {"embedding": [1.0, 0.5], "quality": 0.25}
    rows = {"quality": rated, "serving_default": [0.0, 0.5]}
    return 200, {"predictions": [rows[body["signature_name"]]]}, {}


def test_tf_serving_is_found_out(pictures):
    with listening(like_tensorflow_serving) as (address, paths):
        with Client(address, model="people") as client:
            for _ in range(3):
                assert client.encode(pictures[:1]).tolist() == [[0.0, 0.5]]
    # PLSC's path is tried once.
    assert len(paths) == 4


def test_a_key_that_is_repeated_is_not_in_the_error(pictures):
    repeats = b'HTTP/1.1 500 No\r\n\r\n{"error": "HTTP/9 hush"}', b"HTTP/9 hush\r\n\r\n"
    for answer in repeats:
        with sending(answer) as address, Client(address, api_key="hush") as client:
            with pytest.raises(ServiceError, match=r"HTTP/9 \.\.\."):
                client.encode(pictures[:1])


def test_a_server_that_names_its_model_is_not_asked_otherwise(pictures):
    # Otherwise, embeddings of two models could be in one list.
    answers = iter([(200, {"instance": [{"embedding": [1.0]}]}, {}), (404, {}, {})])
    with listening(lambda *_: next(answers)) as (address, paths):
        with Client(address) as client:
            assert client.encode(pictures[:1]).tolist() == [[1.0]]
            with pytest.raises(ServiceError, match="404: .* is gone"):
                client.encode(pictures[:1])
    assert paths == [PLSC] * 2


def test_tf_serving_is_asked_for_qualities(pictures):
    with listening(like_tensorflow_serving) as (address, _):
        with Client(address, model="people") as client:
            rows, qualities = client.encode_with_quality(pictures[:1])
    assert rows.tolist() == [[1.0, 0.5]] and qualities.tolist() == [0.25]


@contextlib.contextmanager
def silent():
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def busy(path, body):
    return 503, {"error": "too many"}, {"Retry-After": "30"}


def test_turns_and_failures(server, pictures, expected):
    good = f"127.0.0.1:{server['port']}"
    with silent() as slow, listening(busy) as (full, paths):
        service = FaceService(*free_addresses(1), slow, full, good, timeout=0.7)
        for _ in range(8):
            found = service.encode(pictures[:1])
            np.testing.assert_allclose(found, expected[:1], atol=1e-5)
    # It asked to be left alone for 30 seconds.
    assert len(paths) == 1


def answering(value):
    return lambda path, body: (200, {"instance": [{"embedding": [value]}]}, {})


def test_servers_take_turns():
    first, second = map(listening, map(answering, (1.0, 2.0)))
    with first as (one, _), second as (other, _), FaceService() as service:
        service.connect_all_server([one, other])
        found = [service.encode([b"x"])[0][0] for _ in range(4)]
    assert found == [1.0, 2.0, 1.0, 2.0]


def test_no_server_answers(pictures):
    nobody = free_addresses(1)
    with listening(busy) as (full, _), Client(*nobody, full, timeout=1.0) as client:
        with pytest.raises(ServiceError, match="refused.*503: .*too many"):
            client.encode(pictures)
    with pytest.raises(ServiceError, match="connect"):
        FaceService().encode(pictures)


def test_wrong_requests_go_nowhere_else(server):
    address = f"127.0.0.1:{server['port']}"
    with listening(busy) as (other, paths), Client(address, other) as client:
        with pytest.raises(ValueError, match="Image 1 is not"):
            client.encode([picture(0), b"no picture"])
        assert not paths
        with pytest.raises(ValueError, match=r"images\[0\]=str"):
            client.encode(["photo.jpg"])
    for wrong in ("8010", "host:", ":80", "host:http", "http://host:80"):
        with pytest.raises(ValueError, match="host:port"):
            Client(wrong)


def test_answers_that_are_none(pictures):
    rows = {}, {"embedding": ["a"]}, {"embedding": [None]}  # a server's NaN is null
    for answer in ({}, *({"instance": [row]} for row in rows), 3):
        with listening(lambda path, body, a=answer: (200, a, {})) as (address, _):
            with Client(address) as client, pytest.raises(ServiceError):
                client.encode(pictures[:1])


def test_images_of_a_call_are_embedded_by_one_model(pictures):
    # Embeddings of two models cannot be compared.
    row, names = {"instance": [{"embedding": [1.0], "faces": []}]}, iter("aab")
    with listening(lambda *_: (200, row | {"model": next(names)}, {})) as (address, _):
        with Client(address, batch_images=1) as client:
            assert client.encode(pictures[:2]).tolist() == [[1.0]] * 2
            for encode in client.encode, client.encode_faces:
                names = iter("ab")
                with pytest.raises(ServiceError, match="model changed"):
                    encode(pictures[:2])


def test_after_a_fork_each_process_gets_its_own_answers():
    def size_of(_, body):
        [text] = body["base64_string"]
        return 200, {"instance": [{"embedding": [len(text)]}]}, {}

    def all_right(size):
        found = [client.encode([bytes(3 * size)])[0, 0] for _ in range(50)]
        return found == [4 * size] * 50

    with listening(size_of) as (address, _), Client(address) as client:
        assert all_right(1)
        if not (child := os.fork()):
            with contextlib.suppress(BaseException):
                os._exit(not all_right(2))
            os._exit(2)
        assert all_right(3)
        assert os.waitpid(child, 0)[1] == 0


@contextlib.contextmanager
def sending(answer, more=b""):
    """An address that answers one request with these bytes, and goes on with more."""

    def answer_once():
        with contextlib.suppress(OSError), listener.accept()[0] as link:
            link.settimeout(2)  # the client may be gone
            link.recv(1 << 16)
            link.sendall(answer)
            while more and not ended.wait(0.01 if len(more) < 100 else 0):
                link.sendall(more)
            link.shutdown(socket.SHUT_WR)  # the body may come, which would be a reset

    ended = threading.Event()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        pool.submit(answer_once)
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()


# OpenSSL reads on as long as there are such messages, which anyone can send.
def test_a_handshake_of_tls_ends():
    with sending(b"", b"\x16\x03\x03\0\x04\0\0\0\0" * 1000) as address:
        client = Client(address, tls=True, timeout=0.3)
        with client, pytest.raises(ServiceError, match="timed out|EOF"):
            client.encode([b"an image"])


HEAD = b"HTTP/1.1 200 OK\r\n"
LONG = b"\x7f" * 100_000
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "more"),
    [
        # A server that was taken over would hold its clients for ever,
        (HEAD + b"Content-Length: 9999\r\n\r\n", b" "),
        (HEAD + b"X: ", b"y"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        # fill their memory,
        (HEAD + b"\r\n", b" " * (1 << 20)),
        (HEAD + b"Content-Length: 99999999999999\r\n\r\n", b""),
        (CHUNKED + b"-1\r\n", b" " * (1 << 20)),
        (HEAD + b"\r\n" + '{"x": "\U0001f600"}'.encode(), b""),
        (HEAD + b'\r\n{"instance": [[2]], "x": [' + b"0," * (4 << 20) + b"0]}", b""),
        (HEAD + b'\r\n{"instance": [[2]], "x": "\\ud83d\\ude00%s"}' % LONG, b""),
        (b'HTTP/1.1 400 No\r\n\r\n{"error": "%s"}' % LONG, b""),
        # or stop them with an error that none of them expects.
        (CHUNKED + b"-5\r\n", b""),
        (HEAD + b"\r\n" + b"[" * 100_000, b""),
        (HEAD + b'\r\n{"instance": [[1%s]]}' % (b"0" * 400), b""),
    ],
)
def test_a_hostile_server_costs_only_its_turn(answer, more):
    with (
        concurrent.futures.ThreadPoolExecutor(1) as pool,
        sending(answer, more) as address,
        listening(answering(2.0)) as (good, _),
        Client(address, good, timeout=0.5) as client,
    ):
        assert pool.submit(client.encode, [b"x"]).result(20).tolist() == [[2.0]]


def test_a_servers_error_forges_no_line_of_a_log():
    forged = "no\n09:00 The key door was removed\x1b[2J\u202e"
    for status, error in ((400, ValueError), (503, ServiceError)):
        answer = status, {"error": forged}, {}
        with listening(lambda path, body, answer=answer: answer) as (address, _):
            with Client(address) as client, pytest.raises(error) as caught:
                client.encode([b"x"])
            assert str(caught.value).isprintable()
    with sending(f"{forged}\r\n".encode()) as address, Client(address) as client:
        with pytest.raises(ServiceError, match="no") as caught:
            client.encode([b"x"])
        assert str(caught.value).isprintable()


def test_many_threads(server, pictures, expected):
    with (
        Client(f"127.0.0.1:{server['port']}") as client,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        for found in pool.map(client.encode, [pictures] * 80):
            np.testing.assert_allclose(found, expected, atol=1e-5)
