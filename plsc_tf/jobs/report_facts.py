"""Facts about a run for its report: memory, data, environment, checkpoints, starts."""

import contextlib
import dataclasses
import datetime
import json
import os
import platform

import keras
import numpy as np
import tensorflow as tf

import plsc_tf
from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.jobs.memory_plan import planner
from plsc_tf.parallel.memory import read_bytes
from plsc_tf.reporting import metrics_files
from plsc_tf.storage import files

STARTS = "starts.jsonl"
GB = 1e9


def environment(strategy: tf.distribute.Strategy, group) -> dict:
    """{name: text} about programs and devices."""
    devices = [device.device_type for device in tf.config.list_physical_devices()]
    counted = {kind: devices.count(kind) for kind in dict.fromkeys(devices)}
    return {
        "plsc_tf": plsc_tf.__version__,
        "TensorFlow": tf.__version__,
        "Keras": keras.__version__,
        "numpy": np.__version__,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "devices": ", ".join(f"{count} {kind}" for kind, count in counted.items()),
        "replicas": strategy.num_replicas_in_sync,
        "workers": group.size,
    }


def add_start(folder: str, step: int, environment: dict, changes: dict) -> None:
    """Records that a process starts or resumes the run after a step.

    Args:
        folder: of the run.
        step: steps so far.
        environment: see above.
        changes: the options that a resume changed, `{name: [old, new]}`.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    names = ("plsc_tf", "TensorFlow", "replicas", "workers")
    entry = {"time": now, "step": step, **{name: environment[name] for name in names}}
    if changes:
        entry["changed"] = changes
    lines = [*starts(folder), entry]
    text = "".join(f"{json.dumps(one)}\n" for one in lines)
    files.replace(files.join(folder, STARTS), text.encode())


def starts(folder: str) -> list[dict]:
    """[{"time", "step", ...}] of the run so far."""
    return metrics_files.read(files.join(folder, STARTS))


def checkpoints(folder: str) -> list[tuple]:
    """[(name, step, MB)] of the checkpoints that exist."""
    rows = []
    for _, path in catalog.find_all(folder):
        content = manifest.read(path)
        size = sum(entry["bytes"] for entry in content["files"].values())
        step = content["state"].get("global_step")
        rows.append((files.name(path), step, f"{size / 1e6:.1f}"))
    return rows


def peak_memory(strategy: tf.distribute.Strategy) -> dict[str, str]:
    """{name: GB}, the peak of this process."""
    peaks = {
        device: tf.config.experimental.get_memory_info(short_name(device))["peak"]
        for device in strategy.extended.worker_devices
        if "GPU" in device
    }
    with contextlib.suppress(OSError):  # only Linux reports it
        peaks["the process"] = read_bytes("/proc/self/status", "VmHWM")
    return {f"measured, {x}": f"{n / GB:.2f} GB at most" for x, n in peaks.items()}


def network(model) -> dict[str, str]:
    """{name: text} about the size of a model.

    Args:
        model: the `Classifier`.
    """
    rows = {name: array.shape for name, array in model.head.arrays().items()}
    head = sum(int(np.prod(shape)) for shape in rows.values())
    return {
        "network parameters": f"{model.backbone.count_params():,}",
        "network FLOPs": f"{flops(model) / 1e9:.3g} G forward, for each image; a "
        "multiplication and an addition count as two",
        "head parameters": f"{head:,}: "
        + ", ".join(f"{name} {'×'.join(map(str, n))}" for name, n in rows.items()),
    }


def flops(model) -> int:
    """Floating point operations of the network for one image, forward.

    Counted by TensorFlow's profiler in the graph at inference.

    Args:
        model: the `Classifier`.
    """
    shape = (1, *model.image_size, model.backbone.input_shape[3])
    function = tf.function(
        lambda images: model(images, training=False), autograph=False
    )
    concrete = function.get_concrete_function(tf.TensorSpec(shape, tf.uint8))
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder.float_operation()
    options = profiler.ProfileOptionBuilder(options).with_empty_output().build()
    log = tf.get_logger()
    level = log.level
    log.setLevel("ERROR")  # the profiler warns that it belongs to TensorFlow 1
    try:
        operations = profiler.profile(concrete.graph, cmd="op", options=options)
    finally:
        log.setLevel(level)
    return operations.total_float_ops


def short_name(device: str) -> str:
    """The name that TensorFlow's memory statistics take.

    Args:
        device: such as "/job:localhost/replica:0/task:0/device:GPU:0".

    Returns:
        Such as "GPU:0".
    """
    spec = tf.DeviceSpec.from_string(device)
    return f"{spec.device_type}:{spec.device_index}"


def planned_memory(settings, model, process: int, stage) -> dict[str, str]:
    """{name: GB} that the planner expects on the fullest device.

    Args:
        settings: of the run.
        model: the trained `Classifier`.
        process: bytes that the process held before the model was made.
        stage: the `plsc_tf.jobs.stage.Stage` of the training.
    """
    try:
        job = planner.plan(settings, settled=True, stage=stage)
    except (ImportError, ValueError, tf.errors.OpError) as error:
        return {"planned": f"n/a: {str(error).splitlines()[0]}"}
    weights = sum(
        v.shape.num_elements() * tf.as_dtype(v.dtype).size
        for v in (variable.value for variable in model.backbone.trainable_variables)
    )
    if job.backbone.weights != weights:
        return {"planned": "n/a: the network was given in Python"}
    job = dataclasses.replace(job, process=process or job.process)
    sizes = {"planned, a device": job.total()}
    if job.devices.kind == "CPU" and job.devices.replicas > 1:
        sizes["planned, the process"] = job.total() * job.devices.replicas
    facts = {name: f"{size / GB:.2f} GB at most" for name, size in sizes.items()}
    return facts | {
        f"planned, of it: {name}": f"{size / GB:.3f} GB"
        for name, size in job.items().items()
        if size >= GB / 1000
    }
