"""How long hostile requests keep the server from answering others; its memory.

    python -m benchmarks.hostile_server
    python -m benchmarks.hostile_server --attacks='lists base64' --seconds=10

One client sends an attack again and again, then four do so at once; at last four send
all attacks in turn while another sends images. Meanwhile /healthz is asked. The last
line printed is one JSON object; benchmarks/README.md says what its figures mean.
"""

import base64
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import multiprocessing
import pathlib
import subprocess
import sys
import time

import grpc

from benchmarks import jpegs, machine, options
from benchmarks.serving import ServerProcess, ServingCase
from plsc_tf.flags.option import OptionGroup, option

_PLSC = "/FaceClassifyService/inference"
_PREDICT = "/v1/models/face:predict"
_GRPC = "/tensorflow.serving.PredictionService/Predict"
_MB = 10**6
_CLIENTS = 4
# Seconds for the server's memory to fall back.
_REST = 3.0


class HostileCase(OptionGroup):
    """What is sent."""

    attacks: str = option("", "names of attacks, separated by spaces; empty: all")
    seconds: float = option(4.0, "duration of each measurement", lower=0.1)


def main(case):
    """Measures and prints."""
    names = case.attacks.split() or [*_HTTP, *_RPC]
    spawn = multiprocessing.get_context("spawn")
    with (
        machine.scratch("hostile_server") as folder,
        machine.report(case) as figures,
        concurrent.futures.ProcessPoolExecutor(_CLIENTS + 1, spawn) as pool,
    ):
        model_dir = pathlib.Path(folder) / "face"
        subprocess.run([sys.executable, "-c", _EXPORT, str(model_dir)], check=True)
        with ServerProcess(model_dir, ServingCase(), "--grpc_port=0") as server:
            figures |= _measure(server, names, case.seconds, pool)


def _measure(server, names, seconds, pool):
    rss = server.rss()
    found = {
        name: [
            _attack(server, [[name]] * count, seconds, pool) for count in (1, _CLIENTS)
        ]
        for name in names
    }
    orders = [names[start:] + names[:start] for start in range(_CLIENTS)]
    mixed = _attack(server, orders, 4 * seconds, pool, honest=True)
    rounds = [*itertools.chain(*found.values()), mixed]
    return {
        "healthz_s": {
            name: [one["healthz_s"] for one in pair] for name, pair in found.items()
        },
        "mix_healthz_s": mixed["healthz_s"],
        "largest_healthz_s": max(one["healthz_s"] for one in rounds),
        "honest": mixed["honest"],
        "before_mb": round(rss / _MB),
        "growth_mb": round((max(one["rss"] for one in rounds) - rss) / _MB),
        "left_mb": round((server.rss() - rss) / _MB),
    }


def _attack(server, orders, seconds, pool, honest=False):
    """Sends attacks, and asks for /healthz; returns what was measured."""
    end = time.monotonic() + seconds
    ports = server.port, server.grpc_port
    sent = [pool.submit(_send, ports, order, end) for order in orders]
    images = pool.submit(_send_images, server.port, end) if honest else None
    times, rss = [], []
    while time.monotonic() < end or not all(one.done() for one in sent):
        cpu, wall = server.cpu_s(), time.perf_counter()
        _ask(server.port, "GET", "/healthz")
        passed = time.perf_counter() - wall
        # Other processes make it longer on the clock, other threads on processors.
        times.append(min(passed, server.cpu_s() - cpu))
        rss.append(server.rss())
        time.sleep(0.02)
    counts = [one.result() for one in sent]
    time.sleep(_REST)
    found = {"healthz_s": round(max(times), 3), "rss": max(rss)}
    found |= {"honest": images.result()} if honest else {}
    line = {**found, "rss": round(max(rss) / _MB), "left": round(server.rss() / _MB)}
    sys.stderr.write(f"{orders[0][0]} x{len(orders)}: {line} {counts}\n")
    return found


def _ask(port, method, path, body=None, headers=None):
    """The status of an answer, or the error instead of one."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(link):
        try:
            link.request(method, path, body, headers or {})
            return link.getresponse().status
        except OSError as error:
            return type(error).__name__


def _send(ports, names, end):
    """Sends attacks in turn; returns {status: how often}."""
    bodies = {name: (_HTTP | _RPC)[name]() for name in names}
    counts = {}
    options = [("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{ports[1]}", options) as channel:
        call = channel.unary_unary(_GRPC)
        for name in itertools.cycle(names):
            if name in _HTTP:
                status = _ask(ports[0], "POST", *bodies[name])
            else:
                try:
                    status = call(bodies[name], 60) and "OK"
                except grpc.RpcError as error:
                    status = error.code().name
            counts[status] = counts.get(status, 0) + 1
            if time.monotonic() > end:
                return counts


def _send_images(port, end):
    """Sends one image after the other; returns {status: how often}."""
    picture = base64.b64encode(_picture()).decode()
    body, counts = json.dumps({"base64_string": [picture]}), {}
    while time.monotonic() < end:
        status = _ask(port, "POST", _PLSC, body)
        counts[status] = counts.get(status, 0) + 1
        time.sleep(0.01)
    return counts


def _picture():
    return jpegs.draw(1, 112)[0]


def _json(path, start, part, end):
    """A request whose body repeats a part up to 31 MB."""

    def build():
        count = (31 * _MB - len(start) - len(end)) // len(part)
        return path, b"".join([start, part * count, end])

    return build


def _rows(numbers, count):
    """Images as lists of numbers."""

    def build():
        line = b"[%s]" % b",".join([b"[%s]" % numbers] * 112)
        rows = b",".join([b"[%s]" % b",".join([line] * 112)] * count)
        return _PREDICT, b"%s%s]}" % (_IMAGES, rows)

    return build


def _gifs():
    """GIF files of blocks with one byte each."""
    data = b"GIF89a\1\0\1\0\0\0\0\x21\xfe" + b"\1" * 7 * _MB
    return _PLSC, json.dumps({"base64_string": [base64.b64encode(data).decode()] * 3})


_IMAGES = b'{"signature_name":"images","instances":['
_TEXTS = b'{"base64_string":["'
_HTTP = {
    "lists": _json(_PREDICT, b'{"instances":[[]', b",[]", b"]}"),
    "ragged": _json(_PREDICT, _IMAGES + b"0", b",[0,[0]]", b"]}"),
    "numbers": _json(_PREDICT, _IMAGES + b"0", b",0", b"]}"),
    "one_row": _json(_PREDICT, _IMAGES + b"[0", b",0.5", b"]]}"),
    "rows": _rows(b"0,0,0", 15),
    "long_rows": _rows(b",".join([b"0.1234567890123456"] * 3), 15),
    "deep": _json(_PREDICT, b'{"instances":', b"[", b""),
    "objects": _json(_PREDICT, b'{"instances":[{}', b",{}", b"]}"),
    "keys": _json(_PREDICT, b'{"a":NaN', b',"a":0', b"}"),
    "blanks": _json(_PLSC, _TEXTS + b"QUJD", b" ", b'"]}'),
    "line_ends": _json(_PLSC, _TEXTS + b"QUJD", rb"\n", b'"]}'),
    "equals": _json(_PLSC, _TEXTS + b"QUJD", b"=", b'"]}'),
    "letters": _json(_PLSC, _TEXTS, "\u00e9".encode(), b'"]}'),
    "base64": _json(_PLSC, _TEXTS, b"QUJD" * 1_900_000 + b'","', b'"]}'),
    "base64_long": _json(_PLSC, _TEXTS, b"QUJD", b'"]}'),
    "gifs": _gifs,
}


def _field(number, data):
    size, head = len(data), bytes([number << 3 | 2])
    while size > 127:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    return b"".join([head, bytes([size]), data])


def _message(name, part, count, number, shape=b"", more=b""):
    """A request with one field of the input's tensor: `number`, or many if None."""

    def build():
        data = part * count
        data = data if number is None else _field(number, data)
        which = _field(1, b"face") + _field(3, b"images" if name == b"images" else b"")
        kind = b"\x08\x01" if name == b"images" else b"\x08\x07"
        entry = _field(1, name) + _field(2, kind + shape + data)
        return b"".join([_field(1, which), _field(2, entry), more])

    return build


def _names():
    keys = (b"%x" % number for number in range(3_000_000))
    which = _field(1, _field(1, b"face"))
    return which + b"".join(_field(2, _field(1, key)) for key in keys)


def _shape(*sizes):
    return _field(2, b"".join(_field(2, b"\x08" + _size(one)) for one in sizes))


def _size(number):
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def _filtered():
    names = _field(3, b"embedding") * 60_000
    picture = _field(8, _picture())
    return _message(b"bytes", picture, 1, None, _shape(1), names)()


_IMAGES_OF = _shape(128, 112, 112, 3)
_NUMBERS = 128 * 112 * 112 * 3
_RPC = {
    "grpc_names": _names,
    "grpc_filter": _filtered,
    "grpc_dims": _message(b"bytes", b"\x12\0", 15 * _MB, 2),
    "grpc_strings": _message(b"bytes", b"\x42\0", 15 * _MB, None),
    "grpc_unknown": _message(b"bytes", b"\x78\0", 15 * _MB, None),
    "grpc_varints": _message(b"bytes", b"\1", 31 * _MB, 7),
    "grpc_int64s": _message(b"bytes", b"\1", 31 * _MB, 10),
    "grpc_long_varint": _message(b"bytes", b"\x80", 31 * _MB, None),
    "grpc_floats": _message(b"images", b"\0\0\x80?", _NUMBERS, 5, _IMAGES_OF),
    "grpc_content": _message(b"images", b"\0\0\x80?", _NUMBERS, 4, _IMAGES_OF),
}

_EXPORT = """
import sys, keras, plsc_tf
inputs = keras.Input((112, 112, 3))
small = keras.layers.AveragePooling2D(16)(inputs / 255)
model = keras.Model(inputs, keras.layers.Dense(128)(keras.layers.Flatten()(small)))
plsc_tf.export_saved_model(model, sys.argv[1], normalize=True)
"""

if __name__ == "__main__":
    options.run(main, HostileCase, __doc__)
