"""Large, slow and broken-off requests are refused while others are served.

Damaged ones are those of `test_route_fuzzer`.
"""

import concurrent.futures
import json
import re
import socket
import struct

import pytest
import server_tools as tools
from PIL import Image

from plsc_tf.data.images import encode

HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % tools.PLSC.encode()
LENGTH = b"Content-Length: %d\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
LARGE = [
    # They announce a gigabyte; what is sent of it may not even be read.
    *(HEAD + LENGTH % size + bytes(90_000) for size in (2_000_000, 1 << 30, 1 << 40)),
    *(HEAD + CHUNKED + CHUNK * count for count in (20, 40)),
]


def status_of(link):
    """The status of the answer, or None when the connection ends without one."""
    with link:
        try:
            data = link.recv(1 << 16)
        except ConnectionError:
            return None
    return int(data[9:12]) if data.startswith(b"HTTP/1.") else None


def send_large(server, number):
    """The status of the answer to a request that is too large."""
    try:
        return status_of(tools.connect(server, LARGE[number % len(LARGE)]))
    except ConnectionError:
        return None


def break_off(server, data, number):
    """Is gone in the middle of a request: sometimes politely, sometimes not."""
    with tools.connect(server, data[: number * len(data) // 100]) as link:
        linger = struct.pack("ii", number % 2, 0)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def test_large_slow_and_broken_off_requests(server, pictures, expected):
    body = json.dumps({"base64_string": [tools.b64(one) for one in pictures]}).encode()
    good = HEAD + LENGTH % len(body) + body
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        large = [pool.submit(send_large, server, number) for number in range(24)]
        assert {one.result() for one in large} <= {413, None}  # Allocated once.
        assert tools.ask(server, "POST", tools.PLSC, bytes(5_000_000))[0] == 413
        rss, files = tools.resources(server)
        with tools.asking(server, pictures) as answers:
            # Nothing at all, a part of the head, or a part of the body.
            slow = [tools.connect(server, good[:count]) for count in (0, 20, 500) * 4]
            gone = [pool.submit(break_off, server, good, k) for k in range(100)]
            large = [pool.submit(send_large, server, number) for number in range(90)]
            found = {one.result() for one in large}
            late = {status_of(link) for link in slow}
            assert not any(one.result() for one in gone)
    assert 413 in found <= {413, None}
    assert 408 in late <= {408, None}
    assert len(answers) > 3
    tools.assert_right(answers, expected)
    # Connections are not left open, and memory does not grow.
    tools.wait_for(lambda: tools.resources(server)[1] <= files + 4)
    assert tools.resources(server)[0] < rss + 60
    assert server["process"].poll() is None
    assert tools.ask(server, "GET", "/healthz")[0] == 200


FRAMES = [Image.new("L", (800, 800), color) for color in (0, 9)]
TOO_LARGE = {
    "too many": [encode(Image.new("L", (8, 8)), "PNG")] * 41,
    "too long": [encode(Image.new("L", (8, 8)), "JPEG") + bytes(200_000)],
    "JPEG of 2 MP": [encode(Image.new("L", (1000, 2000)), "JPEG")],
    "PNG of 9 MP": [encode(Image.new("L", (3000, 3000)), "PNG")],
    "GIF of 2 frames": [
        encode(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:])
    ],
}


@pytest.mark.parametrize("images", TOO_LARGE.values(), ids=TOO_LARGE)
def test_too_many_and_too_large_images_are_refused(server, images):
    body = {"base64_string": [tools.b64(image) for image in images]}
    status, answer, _ = tools.ask(server, "POST", tools.PLSC, body)
    assert status == 413 and re.search("at most 40|the limit is", answer["error"])
