"""Finds the GPUs of this process, and explains why they cannot be used."""

import os
import pathlib
import re
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from plsc_tf.requirements import require

# The kernel's NVIDIA driver describes itself in this file, also inside a container.
DRIVER_FILE = pathlib.Path("/proc/driver/nvidia/version")
# The oldest driver that runs programs built with any CUDA 12.x, as TensorFlow's is
# (docs.nvidia.com/deploy/cuda-compatibility, "Minor Version Compatibility").
OLDEST_DRIVER = "525.60.13"
# Memory that must be free on each GPU; no training needs less.
LEAST_BYTES = 1 << 28


def to_use(num_replicas: int = 0, required: bool = False) -> int:
    """Returns how many GPUs this process uses; 0 if it has none, or they are hidden.

    Logical GPUs count. If TensorFlow finds no GPU although the machine has an NVIDIA
    driver, the reason is logged or raised.

    Args:
        num_replicas: the number to use; 0 uses all.
        required: whether to raise the reason; always done if `num_replicas` is above 1.

    Raises:
        ValueError: there are fewer GPUs than `num_replicas`, or TensorFlow does not
            find them.
    """
    if not tf.config.list_physical_devices("GPU"):
        reason = _why_missing()
        if reason and (required or num_replicas > 1):
            raise ValueError(reason)
        if reason:
            logging.log_first_n(logging.WARNING, "%s", 1, reason)
    parts = tf.config.get_logical_device_configuration
    visible = tf.config.get_visible_devices("GPU")
    available = sum(len(parts(gpu) or [gpu]) for gpu in visible)
    rule = f"num_replicas={num_replicas}, but this machine has {available} GPU(s)"
    cpu = "hide the GPUs with CUDA_VISIBLE_DEVICES=-1 to use the CPU"
    advice = f"Ask for at most that many (in a cluster, for each worker), or {cpu}"
    require(available == 0 or num_replicas <= available, rule, advice)
    return min(num_replicas or available, available)


def _why_missing():
    """Describes why TensorFlow may find no GPU on a machine with an NVIDIA driver.

    Returns None if there is no driver, or the environment hides the GPUs.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return None
    try:
        text = pathlib.Path(DRIVER_FILE).read_text(encoding="utf-8")
    except OSError:
        return None
    found = re.search(r"Module(?: for \S+)?\s+(\d+(?:\.\d+)*)", text)
    version = found[1] if found else repr(text.strip())
    return (
        f"TensorFlow {tf.__version__} finds no GPU although this machine has NVIDIA's "
        f"driver {version}. It needs driver {OLDEST_DRIVER} or later, and CUDA's "
        f"libraries: pip install 'tensorflow[and-cuda]=={tf.__version__}'. To use the "
        "CPU, set CUDA_VISIBLE_DEVICES=-1."
    )


def implementation(communication: str, used: Sequence[int]) -> str:
    """Chooses the implementation of the collectives of a cluster.

    Args:
        communication: "ring" over TensorFlow's own connections, "nccl" between GPUs, or
            "auto". TensorFlow's own "auto" is the ring even between GPUs.
        used: the number of GPUs that each worker uses.

    Returns:
        "nccl" for "auto" if every replica is a GPU, otherwise `communication`.

    Raises:
        ValueError: the workers use different numbers of GPUs, or none with NCCL.
    """
    counts = {f"worker {i}": number for i, number in enumerate(used)}
    rule = "All workers must use the same number of GPUs"
    require(len(set(used)) == 1, rule, "Set num_replicas to what each has", **counts)
    rule = "communication=nccl needs GPUs, but TensorFlow finds none"
    require(communication != "nccl" or used[0], rule, "Use communication=auto or ring")
    return "nccl" if communication == "auto" and used[0] else communication


def require_working(devices: Sequence[str]) -> None:
    """Checks that each device can compute and has memory left.

    Args:
        devices: names of devices, such as "GPU:0".

    Raises:
        RuntimeError: a device failed.
    """
    for device in devices:
        try:
            with tf.device(device):
                tf.reduce_sum(tf.ones([LEAST_BYTES // 4])).numpy()
        except tf.errors.OpError as error:
            raise RuntimeError(
                f"The device {device} cannot be used: {error.message} If other "
                "processes use all of its memory, as nvidia-smi shows, end them, or "
                "choose other GPUs with CUDA_VISIBLE_DEVICES."
            ) from error
