"""What to change about a training that does not fit, computed and checked."""

import dataclasses
import itertools

from plsc_tf.jobs.memory_plan.planner import Job

RATES = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
FEWEST_TILE_ROWS = 1024
# Each tile has its nodes in the graph, which take memory too.
MOST_TILES = 320
MOST_REPLICAS = 4096
# 1, 2, 3, 4, 6, 8, 12, …: as machines and clusters have them.
DEVICES = sorted({n << k for n in (1, 3) for k in range(13)})


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """Options that make a training fit.

    Attributes:
        options: `{name: value}`.
        job: the `Job` with them.
    """

    options: dict
    job: Job


def suggestions(job):
    """Everything that makes a `Job` fit, each by itself; if nothing does, all together.

    Every suggestion is the smallest change of its option that fits.

    Args:
        job: the `Job`, which does not fit.

    Returns:
        list of `Suggestion`; empty when nothing helps.
    """
    single = []
    for changes in CHANGES:
        single += itertools.islice(
            (found for found in changes(job) if found.job.fits()), 1
        )
    if single:
        return single
    together = Suggestion({}, job)
    for changes in CHANGES:
        tried = list(changes(together.job))
        fitting = [found for found in tried if found.job.fits()]
        if not tried:
            continue
        best = (fitting or [min(tried, key=lambda found: found.job.total())])[0]
        if best.job.total() < together.job.total():
            together = Suggestion({**together.options, **best.options}, best.job)
        if fitting:
            return [together]
    return []


def _sharded(job):
    """The classes split over the replicas, in tiles."""
    if not job.head.sharded:
        loss = f"dist_{job.settings.head.loss}"
        yield Suggestion({"loss_type": loss}, job.with_head(sharded=True))


def _recomputed(job):
    """No logits kept."""
    if job.head.sharded and job.head.kept_tiles:
        yield Suggestion({"head_logits_mb": 0}, job.with_head(logits_bytes=0))


def _smaller_tiles(job):
    rows = job.head.rows_per_tile // 2
    fewest = max(FEWEST_TILE_ROWS, job.head.working_rows // MOST_TILES)
    while job.head.sharded and rows >= fewest:
        yield Suggestion({"head_tile_rows": rows}, job.with_head(tile_rows=rows))
        rows //= 2


def _half_slots(job):
    if job.head.sharded and job.settings.head.head_slot_dtype == "float32":
        half = job.with_head(slot_bytes=job.head.slot_bytes // 2)
        yield Suggestion({"head_slot_dtype": "bfloat16"}, half)


def _accumulation(job):
    parts = 2 * job.head.parts
    images = job.head.global_batch // job.head.replicas
    while parts <= images:
        yield Suggestion(
            {"gradient_accumulation_steps": parts}, job.with_head(parts=parts)
        )
        parts *= 2


def _sampling(job):
    """Partial FC."""
    if not job.head.sharded or job.settings.head.label_smoothing:
        return
    for rate in RATES:
        if rate < job.head.sample_rate:
            yield Suggestion({"sample_rate": rate}, job.with_head(sample_rate=rate))


def _more_devices(job):
    """Devices of the same kind; logical CPU devices would share the same memory."""
    if job.devices.shared or not job.head.sharded:
        return
    batch = job.head.global_batch
    most = min(MOST_REPLICAS, batch, job.head.num_classes)
    for count in DEVICES:
        if job.devices.replicas < count <= most:
            options = {"num_replicas": count, "global_batch_size": batch}
            yield Suggestion(options, job.with_head(replicas=count))


# Those that change nothing about what is learned come first.
CHANGES = (
    _sharded,
    _recomputed,
    _smaller_tiles,
    _half_slots,
    _accumulation,
    _more_devices,
    _sampling,
)
