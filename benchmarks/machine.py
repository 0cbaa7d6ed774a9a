"""What a process uses of its machine; Linux, standard library only."""

import contextlib
import gc
import os
import pathlib
import platform
import time

GB = 1e9


def peak_rss():
    """Largest resident memory this process has had so far, in bytes."""
    return _kilobytes("/proc/self/status", "VmHWM") * 1024


def available_memory():
    """Bytes that processes can still get without swapping."""
    return _kilobytes("/proc/meminfo", "MemAvailable") * 1024


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
def no_garbage_collection():
    """Keeps Python's collector out of what is timed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
