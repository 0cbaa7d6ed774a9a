"""What the options of dimension reduction add to a training."""

import dataclasses
import functools

from absl import logging

from plsc_tf.boost import layout, projection, trajectory
from plsc_tf.boost.reduced_step import ReducedStepper
from plsc_tf.boost.snapshots import NAME, LineSearchLog, Snapshots
from plsc_tf.boost.space import TILE
from plsc_tf.boost.updater import ReducedUpdater
from plsc_tf.checkpoints import catalog
from plsc_tf.heads.memory import FLOAT
from plsc_tf.jobs.stage import ORDINARY, Stage
from plsc_tf.options.settings import known_options
from plsc_tf.parallel.memory import free_memory
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

PROJECTION = "pca_mat.npy"
LOG = "line_search.jsonl"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a stage 2 needs to know.

    Attributes:
        projection: the `Projection`.
        layout: the `Layout` of its columns.
        variables: the mirrored `keras.Variable`s that are reduced, in that order.
        with_head: whether the class weights are reduced too.
        rho: each trial's step, as a share of the one before.
        gamma: momentum of the residual gradient.
        alpha: learning rate of the residual gradient.
        sigma: Armijo's constant.
        trials: steps that are tried.
    """

    projection: projection.Projection
    layout: layout.Layout
    variables: list
    with_head: bool
    rho: float
    gamma: float
    alpha: float
    sigma: float
    trials: int


def of(settings):
    """The stage that the settings ask for; `ORDINARY` where they ask for none.

    Args:
        settings: the `Settings`.
    """
    given = settings.boost
    return BoostStage() if given.snapshots or given.reduces else ORDINARY


class BoostStage(Stage):
    """Snapshots for stage 1, reduced steps for stage 2, or both."""

    def __init__(self):
        self._plan = None

    def begin(self, model, settings):
        """See `Stage.begin`: checks everything, and makes the projection.

        Raises:
            OSError: no room for the projection, on disk or in memory.
            ValueError: options or snapshots that do not fit.
        """
        given = settings.boost
        if not given.reduces:
            return
        _check(settings, model)
        whole = layout.of_model(model, given.dim_reduce_scope)
        check_memory(whole, model, given)
        found = obtain(model, settings, whole)
        variables = list(model.backbone.trainable_variables)
        with_head = given.dim_reduce_scope == "all"
        if with_head and not model.head.sharded:
            variables += model.head.variables_replicated
        self._plan = Plan(
            projection=found,
            layout=whole,
            variables=variables,
            with_head=with_head,
            rho=given.dim_reduce_rho,
            gamma=given.dim_reduce_gamma,
            alpha=given.dim_reduce_alpha,
            sigma=given.dim_reduce_sigma,
            trials=given.line_search_trials,
        )
        model.trainer.updater_class = functools.partial(ReducedUpdater, plan=self._plan)
        logging.info(
            "Dimension reduction: %s weights in %d dimensions",
            f"{whole.size:,}",
            given.n_component,
        )

    def callbacks(self, model, settings):
        """See `Stage.callbacks`."""
        given, found = settings.boost, []
        save_dir = settings.checkpoints.model_save_dir
        if self._plan is not None:
            stepper = ReducedStepper(model, self._plan)
            model.trainer.custom_step = stepper.step
            if model.trainer.group.is_chief and files.is_local(save_dir):
                path = local_path(files.join(save_dir, LOG))
                found.append(LineSearchLog(path, stepper))
        if given.snapshots:
            found.append(
                Snapshots(
                    given.snapshot_dir or files.join(save_dir, NAME),
                    every_n_steps=given.snapshot_every_n_steps,
                    per_epoch=given.snapshots_per_epoch,
                    start_epoch=given.snapshot_start_epoch,
                    max_to_keep=given.snapshot_max,
                    scope=given.dim_reduce_scope,
                    background=settings.checkpoints.save_in_background,
                    extra={"flags": settings.as_dict()},
                )
            )
        return found

    def trimmed(self, backbone, head, settings):
        """See `Stage.trimmed`: reduced weights have no slots."""
        given = settings.boost
        if given.reduces:
            backbone = dataclasses.replace(backbone, slots=0)
            if given.dim_reduce_scope == "all":
                head = head.replace(slot_bytes=0)
        return backbone, head

    def memory(self, backbone, head, settings):
        """See `Stage.memory`."""
        given = settings.boost
        if not given.reduces:
            return {}
        size = replicated = backbone.weights // FLOAT
        if given.dim_reduce_scope == "all":
            classes = head.num_classes * head.row_bytes // FLOAT
            size += classes
            replicated += 0 if head.sharded else classes
        alpha = given.dim_reduce_alpha
        kept = kept_bytes(size, given.n_component, alpha)
        working = working_bytes(size, replicated, head.replicas, alpha)
        # The allocator keeps what one tile of P was made in.
        tile = FLOAT * given.n_component * min(TILE, -(-size // head.replicas))
        return {
            "projection": kept // head.replicas + tile,
            "path": working // head.replicas,
        }


def _check(settings, model):
    """Raises ValueError for options that mean nothing in stage 2."""
    if settings.optimizer.ema_decay:
        raise ValueError(
            "dim_reduce keeps no moving averages of the weights. Received: "
            f"ema_decay={settings.optimizer.ema_decay}; leave it out in stage 2."
        )
    if settings.preprocessing.mixup or settings.preprocessing.cutmix:
        raise ValueError(
            "The trials of dim_reduce need the images that the gradient was of. "
            f"Received: mixup={settings.preprocessing.mixup}, "
            f"cutmix={settings.preprocessing.cutmix}; leave them out in stage 2."
        )
    if settings.learning_rate.learning_rate_factors:
        raise ValueError(
            "dim_reduce moves all layers along common directions. Received: "
            "learning_rate_factors="
            f"{','.join(settings.learning_rate.learning_rate_factors)}; leave it out "
            "in stage 2."
        )
    everything = settings.boost.dim_reduce_scope == "all"
    _check_decays(settings, everything)
    if getattr(settings.performance, "steps_per_execution", 1) > 1:
        raise ValueError(
            "A step of dim_reduce is several graphs. Received: steps_per_execution="
            f"{settings.performance.steps_per_execution}; leave it at 1 in stage 2."
        )
    if everything and getattr(model.head, "sample_rate", 1) < 1:
        raise ValueError(
            "dim_reduce_scope=all needs the gradients of all classes in every step. "
            f"Received: sample_rate={model.head.sample_rate}; use "
            "dim_reduce_scope=backbone, or sample_rate=1."
        )


def _check_decays(settings, everything):
    """Raises ValueError for rules of weights that no optimizer updates."""
    names = ["weight_decay_on"]
    if everything:
        names += ["head_learning_rate_factor", "head_weight_decay"]
    values, known = settings.as_dict(), known_options()
    names = [name for name in names if values[name] != known[name].default]
    if names:
        received = ", ".join(
            f"{name}={known[name].format(values[name])}" for name in names
        )
        raise ValueError(
            "dim_reduce moves the reduced weights without the optimizer's rule. "
            f"Received: {received}; leave {'them' if names[1:] else 'it'} out in stage "
            "2."
        )


def kept_bytes(size, components, alpha):
    """Bytes that stage 2 keeps between steps: P and the residual gradient.

    Args:
        size: n, all reduced weights of this process.
        components: k.
        alpha: rate of the residual gradient, which is kept unless it is 0.
    """
    return FLOAT * size * (components + (1 if alpha else 0))


def working_bytes(size, replicated, replicas, alpha):
    """Bytes that a step of stage 2 works with beside an ordinary one.

    Args:
        size: n, all reduced weights of this process.
        replicated: how many of them every replica has.
        replicas: of this process, which share the columns of P.
        alpha: rate of the residual gradient.
    """
    # Gradient and path, cut, and the new residual.
    cut = size * (3 if alpha else 2)
    # Gradient, path, residual and a trial's weights, whole on every replica.
    return FLOAT * (cut + replicas * replicated * (4 if alpha else 3))


def check_memory(whole, model, given):
    """Raises ValueError where the projection does not fit into memory.

    Args:
        whole: the `Layout`.
        model: the `Classifier`.
        given: the `Boost` options.
    """
    workers = model.trainer.group.size
    replicas = max(1, model.strategy.num_replicas_in_sync // workers)
    replicated = whole.size if not model.head.sharded else whole.backbone_size
    size, alpha = whole.size // workers, given.dim_reduce_alpha
    needed = kept_bytes(size, given.n_component, alpha)
    needed += working_bytes(size, replicated, replicas, alpha)
    free = free_memory()
    if free and needed > free:
        raise ValueError(
            f"dim_reduce_scope={given.dim_reduce_scope} with n_component="
            f"{given.n_component} needs {needed:,} bytes for {whole.size:,} weights. "
            f"Received: {free:,} bytes free. Lower n_component"
            + (
                ", or use dim_reduce_scope=backbone."
                if given.dim_reduce_scope == "all"
                else ", or use more workers, which share it."
            )
        )


def obtain(model, settings, whole):
    """The `Projection` that is asked for, made of the snapshots where it must be.

    Args:
        model: the `Classifier`.
        settings: the `Settings`.
        whole: the `Layout`.
    """
    given, group = settings.boost, model.trainer.group
    save_dir = settings.checkpoints.model_save_dir
    path = given.pca_mat_path or files.join(save_dir, PROJECTION)
    problem = None
    if group.is_chief:
        try:
            _make_or_check(path, model, settings, whole)
        except (OSError, ValueError) as error:
            problem = error
    waited = given.dim_reduce_timeout
    told = group.gather("projection", problem and str(problem), timeout_s=waited)[0]
    if problem is not None:
        raise problem
    if told:
        raise ValueError(told)
    return projection.Projection(path)


def _make_or_check(path, model, settings, whole):
    given = settings.boost
    components = given.n_component
    if not given.pca_mat_path and not _is_kept(path, settings):
        snapshots = trajectory.open_folder(
            given.weight_load_dir, whole, components, model.trainer.heartbeat
        )
        projection.make(path, snapshots, whole, components, model.trainer.heartbeat)
    projection.Projection(path).check(whole, components)


def _is_kept(path, settings):
    """Whether the run has made its projection already, of these snapshots."""
    if not files.exists(path):
        return False
    if catalog.find_all(settings.checkpoints.model_save_dir):
        return True  # the run goes on, in the space it began in
    described = projection.read_description(path)
    if described is None or described["shape"][0] != settings.boost.n_component:
        return False
    folder = settings.boost.weight_load_dir
    now = [place for _, place in catalog.find_all(folder)]
    return described["snapshots"] == now
