"""Determines the memory of devices, the machine and this process."""

import contextlib
import dataclasses
import os
import pathlib

import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.parallel.gpu_figures import GPUS, Gpu

# Files with a container's memory limit, for cgroup v2 and v1.
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices that a run uses.

    Attributes:
        kind: "GPU" or "CPU".
        replicas: number of replicas, one per device.
        bytes: memory of each device.
        shared: whether the devices share one memory, of which `bytes` is an equal
            share.
        gpu: published figures of each GPU, if they are known.
    """

    kind: str
    replicas: int
    bytes: int
    shared: bool
    gpu: Gpu | None = None


def devices(
    num_replicas: int = 0, memory_gb: float | None = None, gpu: Gpu | None = None
) -> Devices:
    """Returns the devices that `plsc_tf.strategy(num_replicas)` would use.

    Args:
        num_replicas: as for `strategy`; may exceed this machine's number of GPUs, to
            plan for more of the same kind.
        memory_gb: memory of each device in 10⁹ bytes; None is that of `gpu` or, without
            it, reads it from this machine.
        gpu: GPU of another machine; None uses the devices of this machine.
    """
    gpus = tf.config.get_visible_devices("GPU")
    kind = "GPU" if gpus or gpu else "CPU"
    count = num_replicas or max(1, len(gpus))
    if memory_gb is None and gpu:
        return Devices(kind, count, gpu.mib << 20, shared=False, gpu=gpu)
    gpu = gpu or _known(gpus)
    if memory_gb is not None:
        return Devices(kind, count, int(memory_gb * 1e9), shared=False, gpu=gpu)
    if not gpus:
        return Devices(kind, count, machine_memory() // count, shared=True)
    limits = private_apis.gpu_memory_limits()
    return Devices(kind, count, min(limits[:count]), shared=False, gpu=gpu)


def _known(gpus):
    """Returns the figures of this machine's first GPU, or None."""
    details = [tf.config.experimental.get_device_details(one) for one in gpus[:1]]
    names = [one.get("device_name") for one in details]
    return next((gpu for gpu in GPUS.values() if gpu.name in names), None)


def machine_memory() -> int:
    """Returns the bytes of this machine's memory, or its container's limit if lower."""
    sizes = []
    for path in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            sizes.append(int(pathlib.Path(path).read_text(encoding="ascii")))
    return min([*sizes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")])


def read_bytes(path: str, name: str) -> int:
    """Returns the bytes in a line `name: 123 kB` of a file in /proc; 0 without it."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(path).read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0
