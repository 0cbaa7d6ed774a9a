"""Presents the plan of a training run's memory and time as tables and as JSON.

If the training does not fit, suggests for each option the smallest change that helps.
"""

import contextlib
import itertools
import json

from plsc_tf.evaluation.report import format_table
from plsc_tf.jobs.memory_plan import step_time
from plsc_tf.jobs.memory_plan.planner import Job

GB = 1e9
RATES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
FEWEST_TILE_ROWS = 1024
# The graph has nodes for each tile, which take memory too.
MOST_TILES = 320
POWERS = [2**n for n in range(1, 13)]
# Usual numbers of devices: 2, 3, 4, 6, 8, 12, ...
DEVICES = sorted({*POWERS, *(3 * n // 2 for n in POWERS)})


def suggestions(job: Job) -> list[tuple[dict, Job]]:
    """Returns [(options, `Job` with these options)]; each entry makes the job fit."""
    fitting = []
    for candidates in _candidates(job):
        for options, changes in candidates:
            changed = job.with_head(**changes)
            if changed.fits():
                fitting.append((options, changed))
                break
    if job.settings.performance.recompute == "none":
        with contextlib.suppress(ValueError):  # a network without blocks
            changed = job.in_blocks()
            fitting += [({"recompute": "blocks"}, changed)] * changed.fits()
    return fitting


def _candidates(job):
    """Returns lists of ({option: value}, {`HeadLoad` attribute: value}).

    Each list is ordered from the smallest change up. Options that do not affect the
    training's results come first.
    """
    head, given = job.head, job.settings.head
    optimizer = job.settings.optimizer.optimizer
    images, most = head.global_batch, min(head.global_batch, head.num_classes)
    parts = [n for n in POWERS if 2 * head.parts <= n <= images // head.replicas]
    parts = [({"gradient_accumulation_steps": n}, {"parts": n}) for n in parts]
    if not head.sharded:
        return [[({"loss_type": f"dist_{given.loss}"}, {"sharded": True})], parts]
    fewest = max(FEWEST_TILE_ROWS, head.working_rows // MOST_TILES)
    tiles = [n for n in (head.rows_per_tile // k for k in POWERS) if n >= fewest]
    slots, rows, size = [], [], head.embedding_size
    sizes = {"float32": 4 * size, "bfloat16": 2 * size, "int8": size + 1}
    for dtype in "bfloat16", "int8":
        row = sizes[dtype] / sizes.get(given.head_weight_dtype, size)
        slot = sizes[dtype] / sizes[given.head_slot_dtype]
        if row < 1:
            changes = {"row_bytes": int(row * head.row_bytes), "weight_dtype": dtype}
            rows.append(({"head_weight_dtype": dtype}, changes))
        # Other optimizers divide by slots, which 8 bits may round to 0.
        if slot < 1 and (dtype == "bfloat16" or optimizer in ("momentum", "lars")):
            changes = {"slot_bytes": int(slot * head.slot_bytes)}
            slots.append(({"head_slot_dtype": dtype}, changes))
    both = [(r | s, n | m) for (r, n), (s, m) in itertools.product(rows, slots)]
    # Logical CPU devices would share the same memory.
    usual = [] if job.devices.shared else DEVICES
    more = [n for n in usual if head.replicas < n <= most]
    batch = {"global_batch_size": images}
    rates = [] if given.label_smoothing else [x for x in RATES if x < head.sample_rate]
    return [
        [({"head_logits_mb": 0}, {"logits_bytes": 0})] if head.kept_tiles else [],
        [({"head_tile_rows": n}, {"tile_rows": n}) for n in tiles],
        slots + (both if head.slot_bytes else []),
        rows,
        parts,
        [({"num_replicas": n, **batch}, {"replicas": n}) for n in more],
        [({"sample_rate": x}, {"sample_rate": x}) for x in rates],
    ]


def text(job: Job) -> str:
    """Returns the plan of a `Job` as tables."""
    head, devices, fits = job.head, job.devices, job.fits()
    share = ", a share of this machine's memory" if devices.shared else ""
    name = devices.gpu.name if devices.gpu else devices.kind
    notes = _notes(job)
    rows = [(name, size, notes.get(name, "")) for name, size in job.items().items()]
    if job.initialization_bytes() == job.total():
        rows.append(("initializing the head", job.total(), "more than a step needs"))
    verdict = f"of {devices.bytes / GB:.3f}: {'fits' if fits else 'does NOT fit'}"
    rows.append(("peak", job.total(), verdict))
    table = format_table((name, f"{n / GB:9.3f}  {note}") for name, n, note in rows)
    parts = [
        f"{head.num_classes:,} classes x {head.embedding_size}, {head.global_batch} "
        f"images per step, on {head.replicas} {name} device(s) with "
        f"{devices.bytes / GB:.2f} GB each{share}",
        f"GB on the fullest device\n{table}",
        f"largest num_classes that fits with the other options: {job.most_classes():,}",
        *([_step_time(job)] if devices.gpu else []),
        _collectives(job),
    ]
    return "\n\n".join(parts if fits else [*parts, _advice(job)])


def as_json(job: Job) -> str:
    """Returns the plan of a `Job` as a JSON object on one line."""
    fitting = [] if job.fits() else suggestions(job)
    found = [{"options": k, "total_bytes": one.total()} for k, one in fitting]
    summary = {
        "fits": job.fits(),
        "num_classes": job.head.num_classes,
        "most_classes": job.most_classes(),
        "replicas": job.head.replicas,
        "device": job.devices.kind,
        "device_bytes": job.devices.bytes,
        "total_bytes": job.total(),
        "bytes": job.items(),
        "while_made_bytes": job.initialization_bytes(),
        "tiles": {
            "rows": job.head.rows_per_tile,
            "count": len(job.head.tiles),
            "kept": job.head.kept_tiles,
        },
        "collectives": [vars(one) for one in job.collectives()],
        "suggestions": found,
    }
    if job.devices.gpu:
        summary["device_name"] = job.devices.gpu.name
        summary["most_images"] = job.most_images()
        summary["step_seconds"] = step_time.bound(job)
        summary["assumptions"] = step_time.ASSUMPTIONS
    return json.dumps(summary)


def _notes(job):
    """Returns {item: remark}."""
    head, settings, backbone = job.head, job.settings, job.backbone
    count, images = len(head.tiles), head.own_batch // head.parts
    each = backbone.activations / backbone.traced_images / 1e6
    own = f"{head.rows:,} of {head.num_classes:,}"
    return {
        "head weights": f"{own if head.rows < head.num_classes else 'all'} classes",
        "head slots": f"{settings.optimizer.optimizer}: "
        f"{head.slot_bytes / head.row_bytes:g} x the weights",
        "kept logits": f"{head.kept_tiles:,} of {count:,} tiles",
        "tile": f"computing one of {count:,} tiles of {head.rows_per_tile:,} classes",
        "activations": f"{images} images at a time, {each:.1f} MB each",
        "backbone weights": settings.model.model_name
        + (" and its auxiliary logits" if backbone.auxiliary else ""),
        "projection": "stage 2: the columns of P, and the residual gradient",
        "path": "stage 2: gradient, direction and moved weights",
        "input pipeline": f"{job.batches_ahead} batches ahead",
    }


def _step_time(job):
    found = step_time.bound(job)
    times = ((name, f"{1e3 * size:12.2f}") for name, size in found.items())
    rows = [(f"at least, on {job.devices.gpu.name}", f"{'ms per step':>12}"), *times]
    speed = job.head.global_batch / found["step"]
    return (
        f"largest batch_size that fits with the other options: {job.most_images():,}"
        f"\n\n{format_table(rows)}\nAt most {speed:,.0f} images/s, assuming "
        f"{step_time.ASSUMPTIONS}."
    )


def _collectives(job):
    if job.head.replicas == 1:
        return "One replica: no collectives."
    rows = [(one.name, one.bytes, one.sent, one.kind) for one in job.collectives()]
    rows.append(("total", *(sum(row[i] for row in rows) for i in (1, 2)), ""))
    numbers = [(n, f"{a / 1e6:12.3f}  {b / 1e6:14.3f}  {k}") for n, a, b, k in rows]
    title = ("MB per step and replica", f"{'result':>12}  {'sent in a ring':>14}")
    return format_table([title, *numbers])


def _advice(job):
    short = f"It needs {(job.total() - job.devices.bytes) / GB:.3f} GB more per device."
    rows = [
        (
            " ".join(f"--{name}={value}" for name, value in options.items()),
            f"{changed.total() / GB:9.3f}  GB per device; "
            f"{changed.most_images():,} images fit",
        )
        for options, changed in suggestions(job)
    ]
    if not rows:
        return f"{short} No single option helps: use fewer classes or more memory."
    return f"{short} Each of these options makes it fit:\n{format_table(rows)}"
