"""Sets up the stages of dimension-reduction training from the options."""

import functools

import keras
from absl import logging

from plsc_tf.boost import projection, trajectory
from plsc_tf.boost.reduced_step import ReducedStepper, ReducedUpdater, ReductionPlan
from plsc_tf.boost.snapshots import NAME, Snapshots
from plsc_tf.boost.space import TILE
from plsc_tf.checkpoints import catalog, writer
from plsc_tf.heads.memory import FLOAT
from plsc_tf.parallel.memory import read_bytes
from plsc_tf.reporting.recorder import StepLines
from plsc_tf.requirements import require
from plsc_tf.storage import files, json_text

PROJECTION, LOG = "pca_mat.npy", "line_search.jsonl"


def begin(model, settings):
    """Prepares the model for stage 2 before it is compiled; runs on all workers.

    Args:
        model: the `Classifier`.
        settings: the `Settings` as they will be used.

    Returns:
        The `ReductionPlan` for `callbacks`; None if this is not a stage 2.

    Raises:
        OSError: the projection does not fit on disk or in memory.
        ValueError: the options or the snapshots do not match the model, or the
            projection does not fit in memory.
    """
    boost = settings.boost
    if not boost.reduces:
        return None
    whole = trajectory.layout_of(model, boost.dim_reduce_scope)
    _check_memory(whole, model, boost)
    path = _projection(model, settings, whole)
    plan = ReductionPlan(projection=path, layout=whole, options=boost)
    model.trainer.updater_class = functools.partial(ReducedUpdater, plan=plan)
    logging.info(f"Reducing {whole.size:,} weights to {boost.n_component} dimensions.")
    return plan


def callbacks(model, settings, plan, run):
    """Returns the Keras callbacks of both stages, and sets the step of stage 2.

    Args:
        model: the compiled `Classifier`.
        settings: the `Settings` as they will be used.
        plan: the result of `begin`.
        run: name of the training, `Checkpoint.run`.
    """
    boost, found = settings.boost, []
    save_dir = settings.checkpoints.model_save_dir
    if plan is not None:
        stepper = ReducedStepper(model, plan)
        model.trainer.custom_step = stepper.step
        if model.trainer.group.is_chief and files.is_local(save_dir):
            line = functools.partial(_log_line, stepper)
            found.append(StepLines(files.join(save_dir, LOG), line))
    if boost.snapshots:
        snapshots = Snapshots(
            boost.snapshot_dir or files.join(save_dir, NAME),
            every_n_steps=boost.snapshot_every_n_steps,
            per_epoch=boost.snapshots_per_epoch,
            start_epoch=boost.snapshot_start_epoch,
            max_to_keep=boost.snapshot_max,
            scope=boost.dim_reduce_scope,
            of_run=run,
            background=settings.checkpoints.save_in_background,
            on_error=settings.checkpoints.on_save_error,
            extra={"flags": settings.as_dict()},
        )
        found.append(snapshots)
    return found


def memory(backbone, head, boost):
    """Returns the bytes that stage 2 needs per device beyond an ordinary step.

    Args:
        backbone: the `plsc_tf.jobs.memory_plan.planner.Backbone`.
        head: the `plsc_tf.heads.memory.HeadLoad`.
        boost: the `Boost` options.

    Returns:
        `{item: bytes}`, {} if this is not a stage 2.
    """
    if not boost.reduces:
        return {}
    size = replicated = backbone.weights // FLOAT
    if boost.dim_reduce_scope == "all":
        classes = head.num_classes * head.row_bytes // FLOAT
        size += classes
        replicated += 0 if head.sharded else classes
    replicas = head.replicas
    kept, working = _bytes(size, replicated, replicas, boost)
    # TensorFlow's allocator keeps the memory used to compute one tile of P.
    tile = FLOAT * boost.n_component * min(TILE, -(-size // replicas))
    return {"projection": kept // replicas + tile, "path": working // replicas}


def _log_line(stepper, model: keras.Model):
    """Returns the step's line search as JSON; NaN and infinity become null."""
    step = model.trainer.position.global_step
    return json_text.finite({"step": step, **stepper.last})


def _bytes(size, replicated, replicas, boost):
    """Computes the memory of stage 2, summed over the replicas of this process.

    Args:
        size: n, the number of reduced weights of this process.
        replicated: the number of these weights that every replica holds.
        replicas: number of replicas of this process, which share the columns of P.
        boost: the `Boost` options.

    Returns:
        (bytes kept between steps, additional bytes that a step needs).
    """
    # If alpha is 0, no residual gradient is kept.
    residual = 1 if boost.dim_reduce_alpha else 0
    # P and the residual gradient.
    kept = size * (boost.n_component + residual)
    # Sharded: gradient, path and new residual. On every replica: gradient, path,
    # the weights of one trial, and the residual.
    working = size * (2 + residual) + replicas * replicated * (3 + residual)
    return FLOAT * kept, FLOAT * working


def _check_memory(whole, model, boost):
    """Raises ValueError if the projection does not fit in memory."""
    workers = model.trainer.group.size
    replicas = max(1, model.strategy.num_replicas_in_sync // workers)
    sharded = model.head.sharded
    replicated = sum(one.size for one in whole.pieces if not (one.rows and sharded))
    needed = sum(_bytes(whole.size // workers, replicated, replicas, boost))
    free = read_bytes("/proc/meminfo", "MemAvailable")
    rule = f"n_component={boost.n_component} needs {needed:,} bytes of memory"
    advice = "Decrease it, use more workers, or set dim_reduce_scope=backbone"
    require(not free or needed <= free, rule, advice, weights=whole.size, free=free)


def _projection(model, settings, whole):
    """Returns the projection's path; the chief makes it from snapshots if needed."""
    boost, group = settings.boost, model.trainer.group
    save_dir = settings.checkpoints.model_save_dir
    path = boost.pca_mat_path or files.join(save_dir, PROJECTION)

    def prepare():
        # A resumed run keeps its reduced space.
        kept = files.exists(path) and catalog.find_all(save_dir)
        if not (boost.pca_mat_path or kept):
            beat, count = model.trainer.heartbeat, boost.n_component
            rows = trajectory.open_folder(boost.weight_load_dir, whole, count, beat)
            projection.make(path, rows, whole, count)
        projection.check(path, whole, boost.n_component)

    function = prepare if group.is_chief else None
    writer.agree(group, "projection", function, boost.dim_reduce_timeout)
    return path
