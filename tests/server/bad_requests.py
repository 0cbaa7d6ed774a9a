"""Bad requests by number: what is sent, and which answers are right."""

import base64
import json
import random
import socket
import struct
import zlib

from server_tools import picture

PLSC = b"/FaceClassifyService/inference"
PREDICT = b"/v1/models/face:predict"
REFUSED = {400, 404, 405, 408, 413, 414, 417, 431}
# A damaged picture may still be one.
PERHAPS = REFUSED | {200}
# None: the connection was closed without an answer.
GONE = REFUSED | {None}


def post(body, path=PLSC, head=b""):
    """A request with a body of known length."""
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST %s HTTP/1.1\r\nHost: x\r\n%s%s\r\n%s" % (path, length, head, body)


def pictures(*encoded):
    """A request of PLSC's with encoded pictures."""
    texts = [base64.b64encode(one).decode() for one in encoded]
    return post(json.dumps({"base64_string": texts}).encode())


def not_json(rng):
    return post(rng.randbytes(rng.randrange(200)), rng.choice((PLSC, PREDICT))), REFUSED


def deep_json(rng):
    depth = rng.randrange(500, 100_000)
    return post(b'{"instances":' + b"[" * depth, PREDICT), REFUSED


def not_a_picture(rng):
    start = rng.choice((b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM"))
    return pictures(start + rng.randbytes(rng.randrange(300))), REFUSED


def cut_picture(rng):
    good = picture(rng.randrange(20), file_format=rng.choice(("JPEG", "PNG")))
    return pictures(good[: rng.randrange(len(good) // 2)]), REFUSED


def damaged_picture(rng):
    good = bytearray(
        picture(rng.randrange(20), file_format=rng.choice(("JPEG", "PNG")))
    )
    for _ in range(rng.randrange(1, 20)):
        good[rng.randrange(len(good))] = rng.randrange(256)
    return pictures(picture(1), bytes(good)), PERHAPS


def bomb(rng):
    """A few kilobytes that would be gigabytes of pixels."""
    kind = rng.randrange(3)
    if kind == 0:
        size = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
        data = zlib.compress(bytes(1 << 20))
        parts = ((b"IHDR", size), (b"IDAT", data), (b"IEND", b""))
        return pictures(
            b"\x89PNG\r\n\x1a\n"
            + b"".join(
                struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c))
                for k, c in parts
            )
        ), {413}
    if kind == 1:
        good = bytearray(picture(2))
        place = good.index(b"\xff\xc0")
        good[place + 5 : place + 9] = struct.pack(">HH", 65_000, 65_000)
        return pictures(bytes(good)), {413}
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, 900, 900, 0) + b"\x08\x01\x00\x00"
    head = b"GIF89a" + struct.pack("<HHBBB", 900, 900, 0, 0, 0)
    return pictures(head + frame * rng.randrange(2, 3000) + b"\x3b"), {413}


def too_many(rng):
    return pictures(*[picture(0)] * rng.randrange(41, 80)), {413}


def long_body(rng):
    """Announces a gigabyte; what is sent of it may not even be read."""
    size = rng.choice((2_000_000, 1 << 30, 1 << 40))
    return (
        b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
        % (PLSC, size, bytes(rng.randrange(100_000)))
    ), {413, None}


def endless_chunks(rng):
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" % PLSC
    return head + chunk * rng.randrange(20, 40), {413, None}


def packed_body(rng):
    """A gzip bomb: 50 MB of blanks."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = packer.compress(bytes(50_000_000)) + packer.flush()
    return post(body, head=b"Content-Encoding: gzip\r\n"), REFUSED


def not_http(rng):
    return rng.choice(
        (
            rng.randbytes(rng.randrange(1, 300)) + b"\r\n\r\n",
            b"GET " + b"/" * 20_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        )
    ), GONE


AT_ONCE = [
    *(not_json, deep_json, not_a_picture, cut_picture, damaged_picture),
    *(bomb, too_many, long_body, endless_chunks, not_http),
]


def send(port, number):
    """Sends bad request `number`; returns (its kind, the status, the right ones)."""
    rng = random.Random(number)
    if number % 400 == 7:
        kind = packed_body
    else:
        kind = AT_ONCE[number % len(AT_ONCE)]
    data, right = kind(rng)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
        ending = rng.randrange(8)
        if ending == 0:
            # Gone in the middle: sometimes politely, sometimes not.
            link.sendall(data[: rng.randrange(len(data))])
            if rng.randrange(2):
                linger = struct.pack("ii", 1, 0)
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return kind.__name__, None, {None}
        try:
            link.sendall(data)
            if ending == 1:
                link.shutdown(socket.SHUT_WR)
                # Half-closed before all had come: no answer is due.
                right = right | {None}
        except OSError:
            right = right | {None}
        return kind.__name__, status_of(link), right


def status_of(link):
    """The status of the answer, or None when the connection ends without one."""
    try:
        data = link.recv(1 << 16)
    except ConnectionError:
        return None
    return int(data[9:12]) if data.startswith(b"HTTP/1.") else None


def open_slow(port, number):
    """A connection that sends a part, then nothing; returns it."""
    rng = random.Random(number)
    data = pictures(picture(0))
    head = data.index(b"\r\n\r\n")
    # Nothing at all, a part of the head, or a part of the body.
    sent = rng.choice((0, rng.randrange(1, head), rng.randrange(head + 4, len(data))))
    link = socket.create_connection(("127.0.0.1", port), timeout=30)
    link.sendall(data[:sent])
    return link


def open_reader_who_sleeps(port):
    """A connection that asks for much and reads nothing; returns it."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect(("127.0.0.1", port))
    link.settimeout(2)
    try:
        while True:
            link.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
    except OSError:
        # Its answers fill all buffers, so the server has stopped to read.
        return link
