"""Renders the report of a run as one self-contained page, and collects its facts."""

import os
import platform
import re
import shlex

import numpy as np
import tensorflow as tf

from plsc_tf import versions
from plsc_tf.evaluation import page, report
from plsc_tf.jobs import results
from plsc_tf.jobs.memory_plan import activations
from plsc_tf.options.settings import ALL, Settings, select
from plsc_tf.parallel.memory import read_bytes
from plsc_tf.storage import files

NAME = "report.html"
# Page of the evaluation card, which the command suggested in the report writes.
CARD = "card/card.html"
# The report links to those of these files that exist.
LINKED = (CARD, "results.json", "metrics.csv", "flags.cfg")
# Additional results that the table at the end of a run omits.
_DETAILS = (
    *("loss_type", "num_classes", "sample_rate"),
    *("seconds_per_step", "seconds_per_epoch", "export_dir"),
)
# Matches user:password@ in a URL.
PASSWORD = re.compile(r"(://)[^/@\s]+@")


def to_html(settings: Settings, outcome: dict, facts: dict) -> bytes:
    """Renders the report as HTML.

    Args:
        settings: the `Settings` of the run.
        outcome: the content of results.json.
        facts: {"network", "data", "memory", "environment": {name: text},
            "starts": [{...}], "charts": [(caption, SVG)], "written": the files of
            `LINKED` that exist}.
    """
    folder = settings.checkpoints.model_save_dir
    rows = list(results.rows(outcome))
    known = [name for name in _DETAILS if outcome.get(name) is not None]
    rows += [(n.replace("_", " "), report.text(outcome[n])) for n in known]
    command = results.next_command(settings, outcome)
    if ".evaluate " in command:
        folder_of_card = files.parent(files.join(folder, CARD))
        command += f" {shlex.quote(f'--card_dir={folder_of_card}')}"
    shown = shown_options(settings)
    return page.render(
        "run_report.html",
        title=f"Training of {settings.model.model_name} on "
        f"{settings.dataset.dataset_name}",
        folder=folder,
        headline=_headline(rows),
        results=rows,
        command=command,
        card=CARD,
        options=[(x.name, shown[x.name], x.format(x.default)) for x in select(ALL)],
        given=settings.given,
        **facts,
    )


def _headline(rows):
    """Returns [(value, name)], evaluation accuracies first.

    A remark after a value, such as a standard deviation, is moved to the name.
    """
    names = ("training_accuracy", "loss", "steps", "images/s")
    figures = [row for row in rows if ": " in row[0] or row[0] == "test accuracy"]
    figures += [row for name in names for row in rows if row[0] == name]
    split = [(*text.partition(" "), name.replace("_", " ")) for name, text in figures]
    return [(n, f"{note}, {name}" if note else name) for n, _, note, name in split]


def shown_options(settings: Settings) -> dict[str, str]:
    """Returns {name: text} of all options; *** replaces secrets, also in URLs."""
    values = settings.as_dict()
    texts = {one.name: one.format(values[one.name]) for one in select(ALL)}
    return {n: PASSWORD.sub(r"\1***@", t) or "(empty)" for n, t in texts.items()}


def environment(model) -> dict:
    """Returns {name: text} that describes the software and a `Classifier`'s devices."""
    devices = [device.device_type for device in tf.config.get_visible_devices()]
    tf32 = tf.config.experimental.tensor_float_32_execution_enabled
    counted = {kind: devices.count(kind) for kind in dict.fromkeys(devices)}
    return {
        **versions.installed(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "devices": ", ".join(f"{count} {kind}" for kind, count in counted.items()),
        "TF32 on GPUs": "on" if tf32() else "off",
        "replicas": model.strategy.num_replicas_in_sync,
        "workers": model.trainer.group.size,
    }


def peak_memory(strategy: tf.distribute.Strategy) -> dict[str, str]:
    """Returns {name: GB as text}, the peak memory of each GPU and of this process."""
    peaks = {}
    for device in strategy.extended.worker_devices:
        if (spec := tf.DeviceSpec.from_string(device)).device_type == "GPU":
            short = f"GPU:{spec.device_index}"  # get_memory_info needs the short name
            peaks[device] = tf.config.experimental.get_memory_info(short)["peak"]
    if peak := read_bytes("/proc/self/status", "VmHWM"):
        peaks["the process"] = peak
    return {f"measured, {x}": f"{n / 1e9:.2f} GB at most" for x, n in peaks.items()}


def network(model) -> dict[str, str]:
    """Returns {name: text} that describes the size of a model.

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
    """Counts the floating-point operations of the network's forward pass on one image.

    Only convolutions and matrix products count, as is usual.

    Args:
        model: the `Classifier`.
    """
    shape = (1, *model.image_size, model.backbone.input_shape[3])
    function = tf.function(lambda x: model(x, training=False), autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec(shape, tf.uint8)).graph
    return sum(found[0] for found in activations.kernels(graph.get_operations()))
