"""The server under load, beside calling its SavedModel directly.

The last line printed is one JSON object; benchmarks/README.md says what its figures
mean.

    python -m benchmarks.serving
    python -m benchmarks.serving --seconds=5 --flat_requests=2000 --model_name=iresnet18
"""

import base64
import concurrent.futures
import contextlib
import dataclasses
import hashlib
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

from benchmarks import jpegs, machine, options, serving_load
from plsc_tf.flags.option import OptionGroup, option

_PATH = "/FaceClassifyService/inference"
_PICTURES = 64
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class ServingCase(OptionGroup):
    """What is served, and how much is asked of it."""

    model_name: str = option("mobilefacenet", "backbone, with random weights")
    model_dir: str = option("", "exported model to serve instead")
    connections: int = option(64, "concurrent connections", lower=1)
    seconds: float = option(5.0, "duration of each measurement", lower=0.1)
    rounds: int = option(5, "alternating rounds of direct calls and requests", lower=1)
    flat_requests: int = option(20_000, "requests while memory is measured", lower=0)
    latency_ms: float = option(100.0, "the server's option", lower=1)
    parallel_batches: int = option(2, "the server's option", lower=1)
    access: bool = option(False, "measure what keys and TLS cost instead")


def main(case):
    """Measures and prints."""
    spawn = multiprocessing.get_context("spawn")
    with (
        machine.scratch("serving") as folder,
        machine.report(case) as figures,
        concurrent.futures.ProcessPoolExecutor(1, spawn) as pool,
    ):
        folder = pathlib.Path(folder)
        if case.model_dir:
            shutil.copytree(case.model_dir, folder / "face")
        else:
            _export(case.model_name, folder / "face")
        images = jpegs.draw(_PICTURES, 112)
        texts = [base64.b64encode(image).decode() for image in images]
        bodies = "".join(f'{{"base64_string":["{text}"]}}\n' for text in texts)
        (folder / "bodies").write_text(bodies)
        if case.access:
            figures |= _access(case, folder, pool)
        else:
            figures |= _measure(case, folder, images, pool)


def _measure(case, folder, images, pool):
    """Figures of one case; see benchmarks/README.md."""
    model_dir = folder / "face"
    direct = Direct(model_dir, images)
    size = direct.best_size(case.seconds / 8)
    with ServerProcess(model_dir, case) as server:
        load = LoadGenerator(case, server.port, folder / "bodies", pool)
        load.run(seconds=min(case.seconds, 3.0))
        rounds = []
        for _ in range(case.rounds):
            direct_s, direct_cpu = direct.images_s(size, case.seconds)
            before = server.cpu_s()
            found = load.run(seconds=case.seconds)
            found["server_cpu_s"] = round(server.cpu_s() - before, 2)
            rounds.append((direct_s, direct_cpu, found))
            sys.stderr.write(f"direct {direct_s:.1f} images/s; {found}\n")
        figures = _figures(rounds, size)
        half = {"rate": figures["requests_s"] / 2, "seconds": case.seconds}
        halves = [load.run(**half) for _ in range(case.rounds)]
        sys.stderr.write(f"half of it: {halves}\n")
        reload = _reload(load, server, model_dir, half)
        sys.stderr.write(f"reload: {reload}\n")
        flat = _flat(load, server, case)
    errors = sum(r["errors"] for *_, r in rounds) + sum(h["errors"] for h in halves)
    return {
        **figures,
        **{
            name: statistics.median(one[name] for one in halves)
            for name in ("p50_ms", "p99_ms")
        },
        "p99s_ms": [one["p99_ms"] for one in halves],
        "latency_ms": case.latency_ms,
        "errors": errors + reload["errors"] + flat.get("errors", 0),
        "reload": reload,
        "memory": flat,
    }


def _access(case, folder, pool):
    """Processor time per request without keys, with them, and with TLS too."""
    # With several connections, batches have copies of images, now more, now fewer.
    case = dataclasses.replace(case, connections=1)
    key, certificate = "key", str(folder / "cert.pem")
    digest = hashlib.sha256(key.encode()).hexdigest()
    # A hundred keys, of which the last is the right one.
    others = [f"k{n} sha256:{n:064x} embed\n" for n in range(99)]
    (folder / "keys").write_text(f"{''.join(others)}own sha256:{digest} embed,admin\n")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext"
    command += f" subjectAltName=IP:127.0.0.1 -out {certificate} -keyout {folder}/key"
    subprocess.run(command.split(), check=True, capture_output=True)
    keys = [f"--api_keys_file={folder / 'keys'}"]
    tls = [*keys, f"--tls_certificate={certificate}", f"--tls_key={folder}/key"]
    kinds = {
        "open": ([], "", ""),
        "keys": (keys, key, ""),
        "tls": (tls, key, certificate),
    }
    cpu_ms, errors = {name: [] for name in kinds}, 0
    with contextlib.ExitStack() as stack:
        sides = {}
        for name, (words, *secrets) in kinds.items():
            server = ServerProcess(folder / "face", case, *words)
            bodies = folder / "bodies"
            load = LoadGenerator(case, server.port, bodies, pool, *secrets)
            sides[name] = stack.enter_context(server), load
        for turn in range(case.rounds + 1):
            for name, (server, load) in sides.items():
                before = server.cpu_s()
                found = load.run(seconds=case.seconds)
                spent = server.cpu_s() - before
                if turn:  # the first is to warm up
                    cpu_ms[name].append(1e3 * spent / found["requests"])
                errors += found["errors"]
    ratios = {
        name: [one / bare for one, bare in zip(found, cpu_ms["open"], strict=True)]
        for name, found in cpu_ms.items()
    }
    return {
        "server_cpu_ms": {n: round(statistics.median(f), 4) for n, f in cpu_ms.items()},
        "ratios": {n: round(statistics.median(f), 3) for n, f in ratios.items()},
        "errors": errors,
    }


def _figures(rounds, size):
    direct = statistics.median(direct for direct, _, _ in rounds)
    served = statistics.median(found["requests_s"] for *_, found in rounds)

    def per_request(name):
        seconds = statistics.median(f[name] / f["requests"] for *_, f in rounds)
        return round(1e3 * seconds, 3)

    return {
        "requests_s": round(served, 1),
        "direct_s": round(direct, 1),
        "ratio": round(statistics.median(f["requests_s"] / d for d, _, f in rounds), 3),
        "ratios": [round(f["requests_s"] / d, 3) for d, _, f in rounds],
        "direct_batch": size,
        # Processor time hardly suffers from others on the machine.
        "direct_cpu_ms": round(1e3 * statistics.median(cpu for _, cpu, _ in rounds), 3),
        "server_cpu_ms": per_request("server_cpu_s"),
        "generator_cpu_ms": per_request("cpu_s"),
    }


def _reload(load, server, model_dir, half):
    """A new version appears while requests come at half of the load."""
    shutil.copytree(model_dir / "1", model_dir / "incoming")
    found, swapped, start = [], None, None
    # One more after the swap: the old version is freed meanwhile.
    while swapped is None or len(found) < 2:
        running = load.start(**half)
        if start is None:
            time.sleep(half["seconds"] / 2)
            os.rename(model_dir / "incoming", model_dir / "2")
            start = time.perf_counter()
        while not running.done():
            if swapped is None and server.metric("plsc_tf_model_version") == 2:
                swapped = round(time.perf_counter() - start, 2)
            time.sleep(0.1)
        found.append(running.result())
    return {
        "requests": sum(part["requests"] for part in found),
        "errors": sum(part["errors"] for part in found),
        "p99_ms": max(part["p99_ms"] for part in found),
        "seconds_to_swap": swapped,
    }


def _flat(load, server, case):
    """Growth of the server's memory, after it has seen some load."""
    if not case.flat_requests:
        return {}
    load.run(requests=case.flat_requests // 10)
    before = server.rss()
    found = load.run(requests=case.flat_requests)
    return {
        "requests": found["requests"],
        "errors": found["errors"],
        "before_mb": round(before / 1e6, 1),
        "growth_mb": round((server.rss() - before) / 1e6, 1),
    }


class Direct:
    """The SavedModel in this process."""

    def __init__(self, model_dir, pictures):
        import tensorflow as tf

        self._tf, self._pictures = tf, pictures
        loaded = tf.saved_model.load(str(model_dir / "1"))
        self._loaded, self._call = loaded, loaded.signatures["serving_default"]

    def best_size(self, seconds):
        """The batch size with the most images per second."""
        speeds = {size: self.images_s(size, seconds)[0] for size in _SIZES}
        sys.stderr.write(
            f"direct, by batch size: { {k: round(v) for k, v in speeds.items()} }\n"
        )
        return max(speeds, key=speeds.get)

    def images_s(self, size, seconds):
        """(images per second, processor seconds per image) in batches of `size`."""
        batch = [self._pictures[i % _PICTURES] for i in range(size)]
        self._run(batch)
        start, cpu, done = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - start < seconds:
            self._run(batch)
            done += size
        passed = time.perf_counter() - start
        return done / passed, (time.process_time() - cpu) / done

    def _run(self, batch):
        return self._call(bytes=self._tf.constant(batch))["embedding"].numpy()


class ServerProcess:
    """`python -m plsc_tf.serve`; as a context, it ends."""

    def __init__(self, model_dir, case, *more):
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "plsc_tf.serve", f"--model_path={model_dir}"),
                *("--port=0", f"--latency_ms={case.latency_ms}"),
                *(f"--parallel_batches={case.parallel_batches}", *more),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self._process.stdout.readline()
        ports = dict(re.findall(r"(\w*port)=(\d+)", line))
        if not ports:
            self.stop()
            raise OSError(f"The server did not start: {line!r}")
        self.port, self.grpc_port = int(ports["port"]), int(ports.get("grpc_port", 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def cpu_s(self):
        """Processor seconds so far (Linux: clock_getcpuclockid)."""
        return time.clock_gettime(~self._process.pid << 3 | 2)

    def rss(self):
        """Bytes of resident memory."""
        text = pathlib.Path(f"/proc/{self._process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+)", text)[1])

    def metric(self, name):
        """A value of its /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            text = answer.read().decode()
        return float(re.search(rf"^{name} (\S+)", text, re.MULTILINE)[1])

    def stop(self):
        """Ends it, and waits."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class LoadGenerator:
    """Runs `benchmarks.serving_load` in the process of a pool."""

    def __init__(self, case, port, bodies, pool, key="", certificate=""):
        places = port, _PATH, str(bodies), case.connections
        self._case = serving_load.LoadCase(*places, key, certificate)
        self._pool = pool

    def start(self, **how):
        """Starts a load with these fields of `LoadCase`; returns a future."""
        case = dataclasses.replace(self._case, **how)
        return self._pool.submit(serving_load.run, case)

    def run(self, **how):
        """The same; returns its figures."""
        return self.start(**how).result()


def _export(name, model_dir):
    import keras

    import plsc_tf

    keras.utils.set_random_seed(0)
    network = plsc_tf.backbones.build(name)
    inputs = keras.Input(network.input_shape[1:])
    model = keras.Model(inputs, network((inputs - 127.5) / 128))
    plsc_tf.export_saved_model(model, model_dir, normalize=True)


if __name__ == "__main__":
    options.run(main, ServingCase, __doc__)
