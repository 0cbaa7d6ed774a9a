"""Time and memory of a process, and its machine; Linux, standard library only."""

import collections
import contextlib
import dataclasses
import gc
import json
import os
import pathlib
import platform
import shutil
import statistics
import tempfile
import time

GB = 1e9


class Stopwatch:
    """Seconds of what is done several times, by name.

    Attributes:
        seconds: `{name: [seconds by the clock, each time]}`.
        cpu_seconds: the same of this process's threads, summed over all cores.
    """

    def __init__(self):
        self.seconds = collections.defaultdict(list)
        self.cpu_seconds = collections.defaultdict(list)

    @contextlib.contextmanager
    def time(self, name):
        """Times the block, and keeps Python's garbage collector out of it."""
        gc.disable()
        try:
            start, busy = time.perf_counter(), time.process_time()
            yield
            self.seconds[name].append(time.perf_counter() - start)
            self.cpu_seconds[name].append(time.process_time() - busy)
        finally:
            gc.enable()

    def medians(self):
        """Returns two dicts: median seconds by name, and those of the processors."""
        both = self.seconds, self.cpu_seconds
        return [{n: statistics.median(times) for n, times in d.items()} for d in both]


def peak_rss():
    """Largest resident memory this process has had so far, in bytes."""
    return _kilobytes("/proc/self/status", "VmHWM") * 1024


def reset_peak_rss():
    """Makes `peak_rss` count from now on; returns what is resident now."""
    pathlib.Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_rss()


def available_memory():
    """Bytes that processes can still get without swapping."""
    return _kilobytes("/proc/meminfo", "MemAvailable") * 1024


def check_memory(needed, asked):
    """Raises ValueError when the machine cannot hold what is asked for.

    Args:
        needed: bytes.
        asked: options that need them, such as "num_classes=10 and emb_size=8".
    """
    free = available_memory()
    if needed > free:
        raise ValueError(
            f"{asked} need at least {needed / GB:.1f} GB of memory. Received: "
            f"{free / GB:.1f} GB free."
        )


def describe():
    """Processor, cores, memory and load of this machine, as a dict."""
    info = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    fields = dict(
        (part.strip() for part in line.split(":", 1))
        for line in info.splitlines()
        if ":" in line
    )
    flags = fields.get("flags", "").split()
    return {
        "processor": fields.get("model name", platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "vector_instructions": "avx512" if "avx512f" in flags else "other",
        "memory_gb": round(_kilobytes("/proc/meminfo", "MemTotal") * 1024 / GB, 1),
        "load_average": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
    }


@contextlib.contextmanager
def watch_others():
    """Yields a dict that gets `others_cores`: cores that other processes kept busy.

    Timings mean little where that is not small; the time that a hypervisor gave to
    other machines counts too.
    """
    found = {}
    start, busy, own = time.perf_counter(), _busy_seconds(), _own_seconds()
    yield found
    wall = time.perf_counter() - start
    others = (_busy_seconds() - busy) - (_own_seconds() - own)
    found["others_cores"] = round(max(0.0, others / wall), 2)


@contextlib.contextmanager
def report(case):
    """Yields a dict of figures, which is printed as a line of JSON at the end.

    Its other keys are `parameters` (the fields of `case`), `machine` and what
    `watch_others` has found.
    """
    figures, described = {}, describe()
    with watch_others() as others:
        yield figures
    about = {"parameters": dataclasses.asdict(case), "machine": described, **others}
    print(json.dumps(rounded({**figures, **about})))


@contextlib.contextmanager
def scratch(name, parent="", needed=0, asked=""):
    """Yields a new folder, which is removed at the end.

    Args:
        name: what the folder's name begins with.
        parent: folder to make it in; "": the temporary folder.
        needed: bytes that its disk must have free.
        asked: name of the option that needs this much space.

    Raises:
        ValueError: the disk has fewer.
    """
    parent = parent or tempfile.gettempdir()
    os.makedirs(parent, exist_ok=True)
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise ValueError(
            f"{asked} needs {needed / GB:.1f} GB in {parent}. "
            f"Received: {free / GB:.1f} GB free. Set folder."
        )
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=parent) as folder:
        yield folder


@contextlib.contextmanager
def work_dir(name, path=""):
    """Yields the folder `path`, made if need be, or "": one that `scratch` makes."""
    if path:
        os.makedirs(path, exist_ok=True)
        yield path
        return
    with scratch(name) as folder:
        yield folder


def rounded(value, digits=6):
    """Rounds all floats in nested lists and dicts."""
    if isinstance(value, dict):
        return {name: rounded(item, digits) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def _kilobytes(path, name):
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise OSError(f"{path} has no line {name}. These benchmarks need Linux.")


def _busy_seconds():
    """Seconds that all cores together have been busy, or stolen."""
    first = pathlib.Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, first.split()[1:9])
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_seconds():
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
