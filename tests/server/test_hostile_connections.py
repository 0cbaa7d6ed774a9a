"""Clients that send or read too little, or nothing, keep nobody else out."""

import asyncio
import contextlib
import gc
import json
import resource
import socket
import struct
import time

import grpc
import pytest
from aiohttp import web
from PIL import Image
from server_tools import PLSC, ask, b64, connect, narrow, picture, served, wait_for

from plsc_tf.data.images import encode
from plsc_tf.flags.server import Server
from plsc_tf.serving.server.bodies import Bodies
from plsc_tf.serving.server.guard import Protocol

FILES = resource.RLIMIT_NOFILE


def frame(kind, flags, stream, content=b""):
    """A frame of HTTP/2."""
    return struct.pack(">IBBI", len(content), kind, flags, stream)[1:] + content


FACE = b"\n\x06\n\x04face"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % PLSC.encode()
EXPECTING = POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def call(stream, method, size, content):
    """The first bytes of a call whose message has a size; all if it is the content's.

    gRPC would log credentials that are not UTF-8, even a key.
    """
    fields = {b":method": b"POST", b":scheme": b"http", b":authority": b"x"}
    fields |= {b":path": b"/tensorflow.serving." + method}
    fields |= {b"te": b"trailers", b"content-type": b"application/grpc"}
    fields |= {b"authorization": b"Bearer \xff"}
    pairs = ((len(k), k, len(v), v) for k, v in fields.items())
    head = b"".join(b"\0%c%s%c%s" % pair for pair in pairs)
    message, ends = struct.pack(">BI", 0, size) + content, size == len(content)
    return frame(1, 4, stream, head) + frame(0, int(ends), stream, message)


def test_messages_that_never_end_fill_no_memory(model_dir, caplog):
    # One client could hold 32 MB in each of 1024 calls, for ever.
    limits = {"max_body_mb": 1, "max_receiving_mb": 4, "receive_timeout": 1.5}
    with served(model_dir, grpc_port=0, **limits) as server:
        with connect(server, PREFACE + frame(4, 0, 0), "grpc_port") as link:
            for stream in (1, 3, 5, 7):
                link.sendall(call(stream, b"PredictionService/Predict", 999_999, b"b"))
            received = b""
            while received.count(b"grpc-message") < 4:
                received += link.recv(1 << 16)
        announced = POST + b"Content-Length: 1000000\r\n\r\n"
        with contextlib.ExitStack() as stack:
            # Clients that only announce their bodies would keep all others out.
            for _ in range(6):
                stack.enter_context(connect(server, announced))
            body = {"base64_string": [b64(picture(0))]}
            answers = [ask(server, "POST", PLSC, body)[0] for _ in range(5)]
    assert answers == [200] * 5
    assert received.count(b"is receiving too many requests") == 2
    assert received.count(b"did not arrive within 1.5 s") == 2
    assert "Bearer" not in caplog.text


@pytest.mark.parametrize("kind", ["slow", "body", "change", "many"])
def test_a_key_can_use_up_memory_and_connections_only_for_itself(kind):
    # Eight gRPC calls of ten bytes, or 16 requests of 32 MB, all without their last
    # byte, kept all other clients out. So did many searches of a large gallery, at the
    # rate of the key, which wait for each other on all connections.
    async def call(key, size, bodies, ended):
        with bodies.counting(key):
            if kind == "slow":
                return await bodies.receive(ended.wait())
            bodies.hold(0 if kind == "many" else size)
            if kind == "change":  # of the gallery, which has the embeddings
                bodies.hold(0)
            return await ended.wait()

    async def main():
        limits = {"max_connections": 2 if kind == "many" else 9, "max_body_mb": 1}
        shared = Bodies(Server(max_receiving_mb=4, **limits)), asyncio.Event()
        calls = [call("hostile", 2_000_000, *shared) for _ in range(3)]
        calls += [call("honest", 1_000_000, *shared)]
        calls = [asyncio.create_task(one) for one in calls]
        await asyncio.wait(calls[1:3], timeout=0.5)
        shared[1].set()
        return await asyncio.gather(*calls, return_exceptions=True)

    found = [getattr(one, "code", one) for one in asyncio.run(main())]
    ended = {"change": [], "many": [2]}.get(kind, [1, 2])
    assert found == ["UNAVAILABLE" if k in ended else True for k in range(4)]


def test_the_head_of_the_next_request_is_limited(server):
    # While a request is computed, half a megabyte would wait on each connection.
    images = [b64(encode(Image.new("L", (1000, 1000)), "PNG"))] * 40
    body = json.dumps({"base64_string": images}).encode()
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with connect(server, request) as link, contextlib.suppress(ConnectionError):
        link.sendall(POST + b"X: %s\r\n" % (b"x" * 8000) * 8)
        assert link.recv(12) == b""


def test_silent_connections_keep_nobody_out(model_dir):
    # A thousand of them, without a key, would end the service: of HTTP as long as they
    # are open, of gRPC by using up the files that the process may open.
    limits, (soft, hard) = {"max_connections": 3}, resource.getrlimit(FILES)
    resource.setrlimit(FILES, (512, hard))
    try:
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(served(model_dir, grpc_port=0, **limits))
            assert resource.getrlimit(FILES)[0] == 512
            ports = 4 * ["port"] + 4 * ["grpc_port"]
            links = [stack.enter_context(connect(server, port=port)) for port in ports]
            assert ask(server, "GET", "/healthz")[0] == 200
            with contextlib.suppress(ConnectionError):
                assert links[0].recv(1) == b""
                assert links[7].recv(1) == b""
            links[2].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert links[2].recv(12) == b"HTTP/1.1 200"
            # Nor do they end the upload of a client with a key.
            upload = stack.enter_context(connect(server, EXPECTING % 2))
            assert upload.recv(1000).startswith(b"HTTP/1.1 100")
            for _ in range(6):
                stack.enter_context(connect(server))
            # Nor those that were refused and send no body either.
            refused = b"POST /none HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"
            for _ in range(6):
                link = stack.enter_context(connect(server, refused))
                assert link.recv(12) == b"HTTP/1.1 403"
            assert ask(server, "GET", "/healthz")[0] == 200
            upload.sendall(b"{}")
            assert upload.recv(12) == b"HTTP/1.1 400"
            # Nor do those with a key that send no body.
            for _ in range(3):
                link = stack.enter_context(connect(server, EXPECTING % 9))
                assert link.recv(12) == b"HTTP/1.1 100"
            assert ask(server, "GET", "/healthz")[0] == 200
        with served(model_dir, max_connections=200):
            assert resource.getrlimit(FILES)[0] == 800
    finally:
        resource.setrlimit(FILES, (soft, hard))


def test_answers_that_are_never_read_keep_nobody_out(model_dir):
    # A thousand small calls of one key kept all others out of gRPC for four minutes,
    # and the memory of twenty large ones kept them out of HTTP, too.
    limits = {"receive_timeout": 0.2, "answer_timeout": 0.3, "max_connections": 2}
    content = FACE + b"\x9a\x06\xe0\x5d" + bytes(12_000)  # an unknown field
    with served(model_dir, grpc_port=0, max_receiving_mb=0.02, **limits) as server:
        # They allow the server to send no bytes.
        window = frame(4, 0, 0, struct.pack(">HI", 4, 0))
        with connect(server, PREFACE + window, "grpc_port") as link:
            for stream in (1, 3):
                method, size = b"ModelService/GetModelStatus", len(content)
                link.sendall(call(stream, method, size, content))
            while b"application/grpc" not in link.recv(1 << 16):
                pass
            with grpc.insecure_channel(f"127.0.0.1:{server['grpc_port']}") as channel:
                assert channel.unary_unary(STATUS)(content, 10)
            # And their connections come to an end.
            with contextlib.suppress(ConnectionError):
                while link.recv(1 << 16):
                    pass


def unread(server):
    """A connection whose client leaves answers of 58 KB, more than the kernel keeps."""
    link = narrow(server)
    link.sendall(20 * b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(0.4)
    return link


@pytest.mark.parametrize(
    ("how", "limits"),
    [
        *(("silent", {}), ("half", {}), ("head", {})),
        # A key with one request in 20 s on each connection kept all others out.
        ("full", {"receive_timeout": 60, "max_connections": 1}),
        # And 5 KB of requests to identify kept 5 MB, a thousand times.
        ("memory", {"receive_timeout": 60, "max_receiving_mb": 0.001}),
    ],
)
def test_answers_that_are_read_in_part_keep_no_connection(model_dir, how, limits):
    # 20 KB from a stranger held a connection until the server was restarted: asyncio
    # does not call `pause_writing` for less than 64 KB, nor drop them when it closes.
    limits = {"receive_timeout": 0.5} | limits
    with served(model_dir, **limits) as server, unread(server) as link:
        if how == "half":
            link.shutdown(socket.SHUT_WR)
        elif how == "head":
            link.sendall(b"GET")
        elif how == "memory":
            unread(server).close()
        wait_for(lambda: "plsc_tf_connections 1.0" in ask(server, "GET", "/metrics")[1])
        received = b""
        with contextlib.suppress(ConnectionError):
            while some := link.recv(1 << 16):
                received += some
    assert received.count(b"HTTP/1.1 200") < 20


CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS += b"b\r\n%s\r\n" % (b"a" * 11) * 5000
TRAILERS = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"
TRAILERS += b"A: %s\r\n" % (b"a" * 8000) * 20
LINES = b"A: %s\r\n" % (b"a" * 1000) * 25
LONG_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n" + LINES


def test_a_connection_is_read_in_small_parts_and_not_ahead():
    # Each connection could keep 32 requests, of 1 MB, behind one without its answer.
    sizes = []

    class Recorder(Protocol):
        def data_received(self, data):
            sizes.append(len(data))
            super().data_received(data)

    async def main():
        answers = web.Server(lambda request: asyncio.sleep(60))
        make, loop = lambda: Recorder(answers, Server(), {}), asyncio.get_running_loop()
        server = await loop.create_server(make, "127.0.0.1")
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(48 * (LONG_HEAD + b"\r\n"))
        for _ in range(500):
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert max(sizes) <= 8192
    assert sum(sizes) <= 200_000


# A head's bytes take five times the memory as text: a thousand connections took 2 GB.
# Chunks of a few bytes, from 60 connections a second, kept others waiting for 2 s.
# Trailers of bodies, in a thousand connections without a key, took 2.4 GB.
@pytest.mark.parametrize("name", ["LONG_HEAD", "CHUNKS", "TRAILERS"])
def test_what_takes_long_to_parse_ends_its_connection(server, name):
    with connect(server) as link, contextlib.suppress(ConnectionError):
        link.sendall(globals()[name] + LINES)
        assert not link.recv(1)


def test_unknown_methods_end_only_their_calls(server, model_dir):
    # One call, without a key, ended gRPC for all until the server was restarted.
    with grpc.insecure_channel(f"127.0.0.1:{server['grpc_port']}") as channel:
        with pytest.raises(grpc.RpcError, match="Method not found"):
            channel.unary_unary(b"/\xff")(b"", 10)
        assert channel.unary_unary(STATUS)(FACE, 10)
    # A hundred ended that of all clients of a proxy, until garbage was collected.
    with served(model_dir, grpc_port=0) as other:
        with grpc.insecure_channel(f"127.0.0.1:{other['grpc_port']}") as channel:
            gc.disable()
            for _ in range(100):
                with pytest.raises(grpc.RpcError, match="Method not found"):
                    channel.unary_unary("/a")(b"", 10)
            gc.enable()
