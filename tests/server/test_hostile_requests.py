"""Small requests that would cost the server much are refused before they cost it."""

import asyncio
import gc
import json
import pathlib
import threading
import time

import grpc
import numpy as np
import pytest
from server_tools import PLSC, ask, b64, connect, picture, predict_request, served

from plsc_tf.data.image_limit import num_pixels
from plsc_tf.flags.server import Server
from plsc_tf.serving.server import rest
from plsc_tf.serving.server.access import Access
from plsc_tf.serving.server.bodies import Bodies
from plsc_tf.serving.server.errors import RequestError
from plsc_tf.serving.server.limits import check_image
from tests.waiting import wait_for

PREDICT = "/v1/models/face:predict"
LISTS = b"[]" + b",[]" * 300_000
NUMBERS = b'{"signature_name": "images", "instances": [%s]}'


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        # Parsing it would block all requests.
        (PREDICT, NUMBERS % LISTS, 413),
        (PREDICT, b'{"instances": [%s]}' % LISTS, 413),
        (PLSC, b'{"base64_string": [%s]}' % LISTS, 413),
        (PLSC, b'{"name": NaN%s}' % (b',"a":0' * 110_000), 413),
        (PREDICT, NUMBERS % (b"[%s0]" % (b"[0,[0]]," * 20_000)), 400),
        # Each text would be decoded in the event loop.
        (PREDICT, b'{"instances": [0%s]}' % (b',""' * 80_000), 413),
        (PLSC, b'{"base64_string": [0%s]}' % (b',""' * 80_000), 413),
        # numpy would give each of these strings 400 KB: gigabytes of memory.
        (PREDICT, NUMBERS % (b'["%s"%s]' % (b"a" * 100_000, b',""' * 20_000)), 400),
    ],
)
def test_costly_json_is_refused(server, path, body, status):
    found, answer, _ = ask(server, "POST", path, body)
    assert (found, list(answer)) == (status, ["error"])


def test_a_path_of_many_folders_is_refused(server):
    # aiohttp tries each of them, which takes 20 ms for 8000, without a key.
    assert ask(server, "GET", "/" + "a/" * 1000)[0] == 400


def test_names_of_hosts_are_judged_at_once():
    # To put such characters in order takes 30 ms, also without a key.
    host = "\u0345" * 2000 + "\u0301" * 2000
    for headers in ({"Host": host}, {"Host": "x", "Origin": f"http://{host}"}):
        begin = time.thread_time()
        Access(Server()).is_ours(headers)
        assert time.thread_time() - begin < 0.005


def test_a_compressed_body_is_refused(server):
    # 30 KB of it were 32 MB to parse.
    assert ask(server, "POST", PLSC, b"packed", {"Content-Encoding": "gzip"})[0] == 415


def test_honest_numbers_and_broken_lines_of_base64_are_answered(server, pictures):
    rows = [[[[0.25, 1, 2.0]] * 12] * 16] * 40  # the most images of a request
    body = {"signature_name": "images", "instances": rows}
    for indent in (None, 2):  # a file written on Windows has many lines
        text = json.dumps(body, indent=indent).replace("\n", "\r\n")
        assert ask(server, "POST", PREDICT, text.encode())[0] == 200
    lines = "\r\n".join(b64(pictures[0]))
    assert ask(server, "POST", PLSC, {"base64_string": [lines]})[0] == 200


def test_grpc_names_what_is_wrong_and_repeats_nothing(server, pictures):
    # Each name would be an output more to convert.
    request = predict_request(pictures[:1], output_filter=["embedding"] * 5000)
    with grpc.insecure_channel(f"127.0.0.1:{server['grpc_port']}") as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        assert call(request.SerializeToString(), 20)
        many = predict_request([b""] * 12_000)
        # Python's lock is held while fields are parsed: seconds for 30 MB of them.
        for data in (many.SerializeToString(), b"\x1a\0" * 12_000, b"\x58\0" * 12_000):
            with pytest.raises(grpc.RpcError, match="at most 10040 fields"):
                call(data, 20)
        with pytest.raises(grpc.RpcError, match="not a PredictRequest"):
            call(b"\x12" + b"\x80" * 100_000, 20)
        with pytest.raises(grpc.RpcError, match="larger than max"):
            call(bytes(2_000_000), 20, compression=grpc.Compression.Gzip)
        long = predict_request([b""], input_name="x" * 100_000).SerializeToString()
        with pytest.raises(grpc.RpcError, match=r"Received: \['xxxxxx'\]"):
            call(long, 20)
        request.inputs["bytes"].dtype = 999  # A traceback for each request fills disks.
        with pytest.raises(grpc.RpcError, match="must be string. Received") as caught:
            call(request.SerializeToString(), 20)
    assert caught.value.code().name == "INVALID_ARGUMENT"


def test_images_that_unpack_to_more_do_not_share_a_batch():
    # 32 of them, each a gigabyte of blanks when unpacked, would stop it for minutes.
    data = picture(0, (3000, 2000), "PNG")
    assert check_image(0, data, Server()) == 6_000_000
    data += bytes(6_000_000)
    assert check_image(0, data, Server()) > 12_000_000
    assert check_image(0, picture(0, (3, 2), "PNG") + b"zTXt" * 9, Server()) > 9_000_000
    # The model refuses it too, but decodes it first: sixteen took 22 s.
    with pytest.raises(RequestError, match="not a JPEG, PNG or GIF"):
        check_image(0, picture(0, (3, 2), "WEBP"), Server())


def seconds_held(function, *arguments):
    """The most processor seconds for which a call keeps Python's lock to itself."""
    caught, held = [], 0.0

    def call():
        try:
            function(*arguments)
        except RequestError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    clock = time.pthread_getcpuclockid(thread.ident)
    last = time.clock_gettime(clock)
    while thread.is_alive():
        time.sleep(0.001)
        try:
            now = time.clock_gettime(clock)
        except OSError:  # It has ended.
            break
        held, last = max(held, now - last), now
    thread.join()
    return held, caught


MB = 10**6
SHAPE = [None, 112, 112, 3]
LINE = b"[%s]" % b",".join([b"[0,0.5,1]"] * 112)
IMAGE = b"[%s]" % b",".join([LINE] * 112)


@pytest.mark.parametrize(
    ("read", "body", "status"),
    [
        ("images", b'{"base64_string":["%s"]}' % (b"QUJD" * (7 * MB)), 0),
        ("images", b'{"base64_string":["%s"]}' % (b"QQ" + b" " * 30 * MB), 0),
        ("inputs", b'{"instances":[%s]}' % b",".join([IMAGE] * 15), 0),
        ("inputs", b'{"instances":[%s]}' % b",".join([IMAGE] * 200), 413),
        ("inputs", b'{"instances":[%s]}' % b",".join([b"[]"] * 10 * MB), 413),
        ("inputs", b'{"instances":%s' % (b"[" * 30 * MB), 413),
        ("inputs", b'{"a":0%s}' % b"".join(b',"%d":0' % k for k in range(90_000)), 400),
        ("inputs", b'{"instances":[0%s]}' % (b",0" * 15 * MB), 413),
    ],
)
def test_parsing_hands_over_pythons_lock(read, body, status):
    def find_input(name):
        return name, "images", np.dtype("float32"), SHAPE

    arguments = (body, find_input, 256) if read == "inputs" else (body, 256, ())
    function = rest.read_inputs if read == "inputs" else rest.read_images
    # The garbage collector holds the lock too, for as long as other tests left objects.
    gc.collect()
    gc.freeze()
    try:
        # On a busy machine this thread may wake late, but not each time.
        attempts = [seconds_held(function, *arguments) for _ in range(3)]
    finally:
        gc.unfreeze()
    for _, caught in attempts:
        assert [error.status for error in caught] == [status] * bool(status)
    assert min(held for held, _ in attempts) < 0.2


@pytest.mark.parametrize("size", [(MB, 0), (1000, 100)])
def test_large_requests_of_a_key_keep_no_other_waiting(size):
    # A key with a hundred requests of 650 KB kept those of others waiting for minutes,
    # one with 500 of 256 tiny images even those to /healthz: for 10 s.
    bodies, order = Bodies(Server()), []

    async def call(key):
        with bodies.counting(key):
            await bodies.parse(*size, order.append, key)

    async def main():
        await asyncio.gather(*map(call, "aaab"))

    asyncio.run(main())
    assert "".join(order) == "abaa"


def test_pythons_collector_passes_over_the_model(model_dir):
    # Four connections with lists of 250 KB stopped /healthz: for each request, it went
    # through 400,000 objects of TensorFlow, and held Python's lock for 0.2 s.
    with served(model_dir):
        frozen = gc.get_freeze_count()
    assert frozen > 100_000 and not gc.get_freeze_count()


# A text of 32 MB, kept until the answer as four times as much, is no part of a request.
def test_only_the_keys_of_a_request_are_kept():
    body = b'{"base64_string": ["YQ=="], "name": "ann", "more": "text"}'
    kept = {"base64_string": [b"a"], "name": "ann"}
    assert rest.read_images(body, 1, ["name"]) == kept


def test_large_images_leave_the_event_loop_to_others(model_dir, monkeypatch):
    # A JPEG of a million empty segments takes 40 ms to look at.
    threads = []

    def check(*arguments):
        threads.append(threading.current_thread().name)
        return check_image(*arguments)

    monkeypatch.setattr("plsc_tf.serving.server.models.check_image", check)
    body = {"base64_string": [b64(picture(0) + bytes(1_500_000))]}
    with served(model_dir) as server:
        assert ask(server, "POST", PLSC, body)[0] == 200
    assert len(threads) == 1 and threads[0] != "plsc-server"


def test_a_gif_of_tiny_blocks_is_no_image():
    # 8 MB of them would keep the event loop for half a second, and 500 requests with
    # four of 12 KB for two seconds.
    gif = picture(0, file_format="GIF")
    assert num_pixels(gif) == 600
    assert num_pixels(gif[:-1] + b"\x21\xfe" + b"\1a" * 500 + b"\0;") is None


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense" * 100 + b"\r\n\r\n",
        b"GET /%s HTTP/1.1\r\n\r\n" % (b"x" * 9000),
        b"GET / HTTP/1.1\r\nX%s: y\r\n\r\n" % (b"\0" * 300),
        b"GET / HTTP/1.1\r\nX: %s\r\n\r\n" % (b"y" * 20_000),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: %s\r\n\r\n" % (b"x" * 5000),
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: \xff\r\n\r\n",
    ],
)
def test_malformed_http_is_answered_with_json(server, model_dir, data):
    with connect(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") as link:
        assert link.recv(1 << 16).startswith(b"HTTP/1.1 200")
        link.sendall(data)
        head, _, body = link.recv(1 << 16).partition(b"\r\n\r\n")
        assert head[9:12] in (b"400", b"417") and b"application/json" in head
        assert len(json.loads(body or link.recv(1 << 16))["error"]) <= 200
    assert "Traceback" not in pathlib.Path(f"{model_dir}.log").read_text()


def test_no_error_repeats_a_long_request(server):
    # The log's reader and the client's memory are the attacker's, if texts are echoed.
    body = json.dumps({"signature_name": "x" * 100_000, "instances": [0]})
    status, answer, _ = ask(server, "POST", PREDICT, body)
    # Thirty megabytes would keep Python's lock for a third of a second.
    assert status == 400 and len(answer["error"]) <= 250
    answer = ask(server, "GET", "/v1/" + "x" * 5000)[1]
    assert len(answer["error"]) <= 200


# 64 refused requests of 31 MB kept 3 GB until later ones made Python look for cycles.
def test_what_is_refused_is_freed_at_once(model_dir):
    bodies = [b'{"a": "%s"x}', b'{"base64_string": ["%s?"]}']
    bodies = [body % (b"\xf0\x9f\x98\x80" + b"a" * 100_000) for body in bodies]
    damaged = b64(picture(1, (300, 200))[:-300])
    errors = RequestError, json.JSONDecodeError
    with served(model_dir) as server:
        gc.collect()
        gc.disable()
        try:
            for body in (*bodies, {"base64_string": [damaged] * 30}):
                assert ask(server, "POST", PLSC, body)[0] == 400
            wait_for(lambda: not [1 for o in gc.get_objects() if isinstance(o, errors)])
        finally:
            gc.enable()
