"""How much memory a replica's device has."""

import contextlib
import dataclasses
import pathlib

import tensorflow as tf

from plsc_tf import private_apis

# What containers may use, by the two versions of Linux's control groups.
LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run.

    Attributes:
        kind: "GPU" or "CPU".
        replicas: how many there are.
        bytes: memory of each.
        shared: whether that is an equal share of one memory.
    """

    kind: str
    replicas: int
    bytes: int
    shared: bool


def devices(num_replicas: int = 0, memory_gb: float | None = None) -> Devices:
    """Returns the devices that `plsc_tf.strategy(num_replicas)` would use.

    Args:
        num_replicas: as for `strategy`; there may be more than this machine has GPUs
            if `memory_gb` is given.
        memory_gb: memory of each in 10⁹ bytes; None: that of this machine.

    Raises:
        ValueError: more GPUs than the machine has, or its memory is unknown.
    """
    gpus = tf.config.list_physical_devices("GPU")
    kind = "GPU" if gpus else "CPU"
    count = num_replicas or max(1, len(gpus))
    if memory_gb is not None:
        return Devices(kind, count, int(memory_gb * 1e9), shared=False)
    if not gpus:
        return Devices(kind, count, machine_memory() // count, shared=True)
    if count > len(gpus):
        raise ValueError(
            f"num_replicas={count}, but this machine has {len(gpus)} GPU(s). To plan "
            "for another machine, give the memory of its GPUs: --device_memory_gb=80."
        )
    limits = private_apis.gpu_memory_limits()
    return Devices(kind, count, min(limits[:count]), shared=False)


def machine_memory() -> int:
    """Returns the bytes of this machine's memory, or of what its container may use.

    Raises:
        ValueError: the system is not Linux.
    """
    sizes = []
    for path in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such group, or "max"
            sizes.append(int(pathlib.Path(path).read_text(encoding="ascii")))
    try:
        return min([*sizes, read_bytes("/proc/meminfo", "MemTotal")])
    except OSError as error:
        raise ValueError(
            "The size of this system's memory is unknown: give it, "
            "--device_memory_gb=16."
        ) from error


def process_memory() -> int:
    """Returns the bytes that this process holds in memory now; 0 if unknown."""
    with contextlib.suppress(OSError):
        return read_bytes("/proc/self/status", "VmRSS")
    return 0


def free_memory() -> int:
    """Returns the bytes that are available without swapping; 0 if unknown."""
    with contextlib.suppress(OSError):
        return read_bytes("/proc/meminfo", "MemAvailable")
    return 0


def read_bytes(path: str, name: str) -> int:
    """Returns the bytes of a line `name: 123 kB` of one of Linux's tables.

    Raises:
        OSError: there is no such table or line.
    """
    for line in pathlib.Path(path).read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"{path} has no line {name}")
