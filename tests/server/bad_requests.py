"""Bad requests by number: what is sent, and which answers are right."""

import base64
import gzip
import json
import random
import socket
import struct

from server_tools import picture

PLSC = b"/FaceClassifyService/inference"
HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
REFUSED = {400, 404, 405, 408, 413, 414, 417, 431}
# A gzip bomb: 20 MB of blanks.
PACKED = gzip.compress(bytes(20_000_000))


def post(body, path=PLSC, head=b""):
    """A request with a body of known length."""
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST " + path + HOST + length + head + b"\r\n" + body


def pictures(*encoded):
    """A request of PLSC's with encoded pictures."""
    texts = [base64.b64encode(one).decode() for one in encoded]
    return post(json.dumps({"base64_string": texts}).encode())


def not_json(rng):
    return post(rng.randbytes(rng.randrange(200))), REFUSED


def damaged_picture(rng):
    bad = bytearray(picture(rng.randrange(20), file_format=rng.choice(("JPEG", "PNG"))))
    for _ in range(rng.randrange(1, 20)):
        bad[rng.randrange(len(bad))] = rng.randrange(256)
    # It may still be a picture.
    return pictures(picture(1), bytes(bad)), REFUSED | {200}


def long_body(rng):
    """Announces a gigabyte; what is sent of it may not even be read."""
    size = rng.choice((2_000_000, 1 << 30, 1 << 40))
    head = b"POST %s%sContent-Length: %d\r\n\r\n" % (PLSC, HOST, size)
    return head + bytes(rng.randrange(100_000)), {413, None}


def endless_chunks(rng):
    chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
    head = b"POST %s%sTransfer-Encoding: chunked\r\n\r\n" % (PLSC, HOST)
    return head + chunk * rng.randrange(20, 40), {413, None}


def packed_body(rng):
    return post(PACKED, head=b"Content-Encoding: gzip\r\n"), REFUSED


def not_http(rng):
    noise = rng.randbytes(rng.randrange(1, 300)) + b"\r\n\r\n"
    return noise, REFUSED | {None}


KINDS = (not_json, damaged_picture, long_body, endless_chunks, packed_body, not_http)


def send(port, number):
    """Sends bad request `number`; returns its kind and a wrong status, or None."""
    rng = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    data, right = kind(rng)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as link:
        ending = rng.randrange(8)
        if ending == 0:
            # Gone in the middle: sometimes politely, sometimes not.
            link.sendall(data[: rng.randrange(len(data))])
            linger = struct.pack("ii", rng.randrange(2), 0)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            return None
        try:
            link.sendall(data)
            if ending == 1:
                link.shutdown(socket.SHUT_WR)
                # Half-closed: no answer is due.
                right = right | {None}
        except OSError:
            right = right | {None}
        status = status_of(link)
        return None if status in right else (kind.__name__, number, status)


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
            link.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
    except OSError:
        # Its answers fill all buffers, so the server has stopped to read.
        return link
