"""The plan of a training's memory as a table, and as JSON."""

import json

from plsc_tf.heads import traffic
from plsc_tf.jobs.memory_plan.advice import suggestions

GB = 1e9


def text(job):
    """The tables of a `planner.Job`."""
    lines = [*_devices(job), "", *_bytes(job), ""]
    most = job.most_classes()
    fitting = f"{most:,}" if most else "none"
    lines.append(f"largest num_classes that fits, all else unchanged: {fitting}")
    lines += ["", *_collectives(job)]
    found = [] if job.fits() else suggestions(job)
    if not job.fits():
        lines += ["", *_advice(job, found)]
    if job.backbone.passes.unknown:
        lines += [
            "",
            f"Not counted: {job.backbone.passes.unknown} tensors of the backbone whose "
            "size its graph does not tell.",
        ]
    return "\n".join(lines)


def as_json(job):
    """The same as one JSON object on one line."""
    found = [] if job.fits() else suggestions(job)
    summary = {
        "fits": job.fits(),
        "num_classes": job.head.num_classes,
        "most_classes": job.most_classes(),
        "replicas": job.head.replicas,
        "device": job.devices.kind,
        "device_bytes": job.devices.bytes,
        "total_bytes": job.total(),
        "bytes": job.items(),
        "while_made_bytes": job.while_made(),
        "tiles": {
            "rows": job.head.rows_per_tile,
            "count": len(job.head.tiles),
            "kept": job.head.kept_tiles,
        },
        "collectives": [vars(one) for one in _exchanged(job)],
        "suggestions": [
            {"options": one.options, "total_bytes": one.job.total()} for one in found
        ],
    }
    return json.dumps(summary)


def _devices(job):
    count, kind = job.devices.replicas, job.devices.kind
    each = f"{job.devices.bytes / GB:.2f} GB"
    if kind == "GPU":
        where = f"{count} GPU{'s' if count > 1 else ''} with {each} each"
    elif job.devices.shared and count > 1:
        whole = job.devices.bytes * count / GB
        where = f"{count} logical CPU devices, {each} each of the {whole:.2f} GB here"
    else:
        where = f"{count} CPU device{'s' if count > 1 else ''} with {each} each"
    head = job.head
    return [
        f"{head.num_classes:,} classes x {head.embedding_size}, {head.global_batch} "
        f"images per step, on {where}"
    ]


def _bytes(job):
    notes = _notes(job)
    rows = [
        (name, f"{size / GB:.3f}", notes.get(name, ""))
        for name, size in job.items().items()
    ]
    if job.while_made() == job.total():
        size = f"{job.while_made() / GB:.3f}"
        rows.append(("while the head is made", size, "more than a step needs"))
    verdict = "fits" if job.fits() else "does NOT fit"
    total = f"{job.total() / GB:.3f}"
    rows.append(
        ("most at a time", total, f"of {job.devices.bytes / GB:.3f}: {verdict}")
    )
    return ["GB per device, at its fullest", *_columns(rows)]


def _notes(job):
    """What to say beside each item."""
    head, settings, passes = job.head, job.settings, job.backbone.passes
    slots = head.slot_bytes / head.row_bytes
    count = len(head.tiles)
    kept = f"{head.kept_tiles:,} of {count:,} tiles"
    if head.kept_tiles < count:
        kept += "; those of the others are computed again"
    images = head.own_batch // head.parts
    each = passes.bytes / job.backbone.traced_images / 1e6
    held = "of" if head.sharded and head.replicas > 1 else "all"
    rows = f"{head.rows:,} {held} {head.num_classes:,} classes"
    tiles = f"{count:,} tiles of {head.rows_per_tile:,} classes"
    return {
        "head weights": rows if held == "of" else f"all {head.num_classes:,} classes",
        "head slots": f"{settings.optimizer.optimizer}: {slots:g} x the weights",
        "kept logits": kept,
        "tile": f"work on one of {tiles}",
        "activations": f"{images} images at a time, {each:.1f} MB each",
        "backbone weights": settings.model.model_name
        + (" and its auxiliary logits" if job.backbone.auxiliary_classes else ""),
        "gradients": "of the weights that every replica has",
        "new values": "of weights, beside the old ones",
        "projection": "stage 2: the columns of P, and the residual gradient",
        "path": "stage 2: gradient, direction and moved weights",
        "allocator": "what it has taken and leaves unused (estimated)",
        "programs": "graphs and compiled code (estimated)",
        "input pipeline": f"{job.batches_ahead} batches ahead",
        "TensorFlow": "as started, the replicas share it",
    }


def _exchanged(job):
    return traffic.collectives(
        job.head,
        job.backbone.weights,
        smoothing=bool(job.settings.head.label_smoothing),
        ranks=2 if job.settings.head.calc_acc else 0,
    )


def _collectives(job):
    if job.head.replicas == 1:
        return ["One replica: nothing is exchanged."]
    found = _exchanged(job)
    rows = [
        (one.name, f"{one.bytes / 1e6:.3f}", f"{one.sent / 1e6:.3f}", one.kind)
        for one in found
    ]
    whole, sent = (
        sum(getattr(one, name) for one in found) for name in ("bytes", "sent")
    )
    rows.append(("together", f"{whole / 1e6:.3f}", f"{sent / 1e6:.3f}", ""))
    title = ("MB per step and replica", "result", "sent in a ring", "")
    return _columns([title, *rows])


def _advice(job, found):
    short = (job.total() - job.devices.bytes) / GB
    lines = [f"It needs {short:.3f} GB more per device than there is."]
    if not found:
        return [
            *lines,
            "None of the options makes it fit: fewer classes, or more memory.",
        ]
    lines.append(
        "Any of these makes it fit:" if len(found) > 1 else "This makes it fit:"
    )
    rows = [
        (
            " ".join(f"--{name}={value}" for name, value in one.options.items()),
            f"{one.job.total() / GB:.3f}",
            "GB per device",
        )
        for one in found
    ]
    return [*lines, *_columns(rows)]


def _columns(rows):
    """Lines of aligned columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *numbers, last in rows:
        cells = [first.ljust(widths[0])]
        cells += [n.rjust(w) for n, w in zip(numbers, widths[1:-1], strict=True)]
        lines.append("  ".join([*cells, last]).rstrip())
    return lines
