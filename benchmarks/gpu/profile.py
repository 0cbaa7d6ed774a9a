"""Step E: what a GPU does in five steps of a training, and its memory."""

import collections
import contextlib
import io
import json
import pathlib
import re
import tempfile

from benchmarks.gpu import networks, smoke

PS = 1e12


def steps(*, global_batch, warmup, traced, save_to="", **network):
    """Traces steps of `fit` and adds up what the GPU did in them.

    Args:
        global_batch: images of a step.
        warmup: steps before the trace.
        traced: steps in the trace.
        save_to: file to which the trace is copied; "": it is not kept.
        **network: arguments of `networks.make_model`.
    """
    import keras
    import tensorflow as tf

    model = networks.make_model(**network)
    batch = networks.make_batch(
        image_size=network["image_size"],
        num_classes=network["num_classes"],
        global_batch=global_batch,
    )
    with tempfile.TemporaryDirectory(prefix="plsc_tf-gpu-") as folder:

        class Trace(keras.callbacks.Callback):
            done = 0

            def wants(self, step):
                """Lets training launch the other steps ahead, as it usually does."""
                return step in (warmup, warmup + traced)

            def on_train_batch_end(self, batch, logs=None):
                self.done += 1
                if self.done == warmup:
                    tf.profiler.experimental.start(folder)
                if self.done == warmup + traced:
                    tf.profiler.experimental.stop()

        # Two steps more, so that the last traced one does not end the epoch.
        data = tf.data.Dataset.from_tensors(batch).repeat(warmup + traced + 2)
        data = data.prefetch(2)
        model.fit(data, epochs=1, verbose=0, callbacks=[Trace()])
        [trace] = pathlib.Path(folder).rglob("*.xplane.pb")
        content = trace.read_bytes()
    if save_to:
        pathlib.Path(save_to).write_bytes(content)
    return {
        "network": network["model_name"],
        "batch": global_batch,
        "dtype": network["dtype"],
        **summary(content, traced),
        "memory_gb": networks.peak_gb(),
    }


def summary(content, count):
    """Adds up the work of the GPU in a trace.

    Args:
        content: the bytes of an `xplane.pb` file.
        count: number of steps in it.

    Returns:
        dict, per step: `kernels` and `copies_to_host`, `copies_to_gpu` (numbers),
        `mb_to_host`, `mb_to_gpu`; `idle_share` (of the time between the first and the
        last kernel, that in which no kernel ran) and `details`: the ten kernels that
        took longest. Without a GPU, only `planes`.
    """
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(content)
    planes = [plane for plane in space.planes if plane.name.startswith("/device:GPU")]
    if not planes:
        return {"planes": ", ".join(plane.name for plane in space.planes)}
    copies, bytes_, busy = collections.Counter(), collections.Counter(), []
    seconds = collections.Counter()
    for name, start, duration, details in _events(planes[0]):
        kind = re.match(r"Memcpy(\w+)|Mem[Ss]et", name)
        if not kind:
            busy.append((start, start + duration))
            seconds[name] += duration
        elif kind[1]:
            copies[kind[1]] += 1
            size = re.search(r"size:(\d+)", details)
            bytes_[kind[1]] += int(size[1]) if size else 0
    working, whole = _union(busy)
    return {
        "kernels": len(busy) / count,
        "copies_to_host": copies["D2H"] / count,
        "copies_to_gpu": copies["H2D"] / count,
        "mb_to_host": bytes_["D2H"] / count / 1e6,
        "mb_to_gpu": bytes_["H2D"] / count / 1e6,
        "traced_ms": 1e3 * whole / count,
        "busy_ms": 1e3 * working / count,
        "idle_share": 1 - working / whole if whole else None,
        "details": {
            "longest_ms": {
                name: 1e3 * duration / count
                for name, duration in seconds.most_common(10)
            }
        },
    }


def _events(plane):
    """Yields (name, start, duration in seconds, details) of what ran on a GPU."""
    names = {number: one.name for number, one in plane.event_metadata.items()}
    stats = {number: one.name for number, one in plane.stat_metadata.items()}
    lines = [line for line in plane.lines if line.name.startswith("Stream")]
    for line in lines:
        base = line.timestamp_ns * 1e3
        for event in line.events:
            texts = [
                stat.str_value or stats.get(stat.ref_value, "")
                for stat in event.stats
                if stats.get(stat.metadata_id) == "memcpy_details"
            ]
            start = (base + event.offset_ps) / PS
            name = names.get(event.metadata_id, "")
            yield name, start, event.duration_ps / PS, "".join(texts)


def _union(intervals):
    """Returns (seconds in any of the intervals, seconds from the first to the last)."""
    if not intervals:
        return 0.0, 0.0
    ordered = sorted(intervals)
    working, end = 0.0, ordered[0][0]
    for first, last in ordered:
        working += max(0.0, last - max(first, end))
        end = max(end, last)
    return working, end - ordered[0][0]


def planned(flags):
    """What `--dry_run` says about the memory of the same training.

    Args:
        flags: options of the training.
    """
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            smoke.command("train", *flags, "--dry_run", "--json")
        except RuntimeError:
            if not out.getvalue().strip():
                raise  # status 1 says that the training does not fit
    plan = json.loads(out.getvalue().splitlines()[-1])
    return {
        "network": "--dry_run of the same",
        "memory_gb": plan["total_bytes"] / 1e9,
        "details": plan,
    }
