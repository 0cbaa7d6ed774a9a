"""Plans a run before anything is built or trained."""

import dataclasses

from absl import logging

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.jobs import parts, resume_changes
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.group import SingleWorker
from plsc_tf.requirements import require
from plsc_tf.storage import files, fs_options, outputs
from plsc_tf.training import schedules


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a run, made before anything is trained.

    Attributes:
        settings: the `Settings` with the final global_batch_size and model_save_dir.
        checkpoint: folder of the checkpoint to resume from, or None.
        steps_per_epoch: number of steps in an epoch.
        total_steps: number of steps in the whole run.
        rate: learning rate, scaled to the global batch.
        schedule: Keras schedule of the learning rate; `stop_at_step` ends a run early
            without changing it.
    """

    settings: Settings
    checkpoint: str | None
    steps_per_epoch: int
    total_steps: int
    rate: float
    schedule: object


def choose_folder(settings, num_replicas, group=None, given=(), lock=None):
    """Chooses the folder and the global batch, and finds the checkpoint to resume.

    Args:
        settings: the requested `Settings`.
        num_replicas: number of replicas; multiplied by `batch_size` if
            global_batch_size is not set.
        group: the `Group` of workers, all of which must call this function; None for
            a single worker.
        given: names of the parts from Python, `Parts.given()`.
        lock: the `WriterLock` with which the chief locks the folder before anything in
            it is read or changed; None if nothing will be written.

    Returns:
        (settings as they will be used, checkpoint folder or None).

    Raises:
        FolderInUseError: another run is writing to the folder.
        ValueError: the requested global batch or options differ from the run's, the
            newest checkpoint is damaged, or a link leads out of the folder.
        OSError: the folder cannot be reached or written to; it is never assumed to be
            empty.
    """
    save_dir, group = settings.checkpoints.model_save_dir, group or SingleWorker()
    requested = settings.training.global_batch_size
    batch = requested or settings.training.batch_size * num_replicas
    files.prepare(save_dir)
    fresh, number = save_dir, 1
    while settings.checkpoints.restart and group.is_chief and files.exists(fresh):
        number += 1
        fresh = f"{save_dir.rstrip('/')}-{number}"
    if group.is_chief and lock is not None:
        lock.acquire(fresh)
        outputs.require_closed(fresh)
    if settings.checkpoints.restart:
        fresh = group.gather("fresh folder", fresh)[0]
        if fresh != save_dir:
            logging.info("Starting over in %s; %s stays as it is.", fresh, save_dir)
        changes = {"model_save_dir": fresh, "restart": False}
        return settings.replace(global_batch_size=batch, **changes), None
    on_damaged = settings.checkpoints.on_damaged_checkpoint
    checkpoint = catalog.newest(save_dir, on_damaged=on_damaged, group=group)
    if checkpoint is None:
        return settings.replace(global_batch_size=batch), None
    return _resumed(settings, checkpoint, batch, given), checkpoint


def _resumed(settings, checkpoint, batch, given):
    """Returns the settings of a resumed run after checking that it can resume."""
    stored = manifest.read(checkpoint)["state"]
    flags, start = stored.get("flags", {}), settings.checkpoints.checkpoint_dir
    run_batch = flags.get("global_batch_size")
    advice = f"start a new run from these weights: --checkpoint_dir={checkpoint} "
    advice += "--model_save_dir=<another folder>"
    rule = f"This command cannot resume {checkpoint}, which a Python script saved"
    require(run_batch is not None, rule, f"Resume it there, or {advice}")
    # Larger numbers cannot be saved: a forged run would lose what it trains.
    steps, epoch = stored["global_step"], stored.get("epoch", 0)
    fits = max(steps, epoch) < 1 << 50 and len(stored.get("starts", ())) < 10_000
    require(fits, f"{checkpoint} has too many steps, epochs or starts; {advice}")
    parts.check_resumed(checkpoint, stored, given)
    resume_changes.find(checkpoint, stored, settings)
    kept = settings.training.global_batch_size in (0, run_batch)
    rule = f"{checkpoint} has global_batch_size={run_batch}, which a resume keeps"
    require(kept, rule, f"Leave it out, or {advice}", global_batch_size=batch)
    if batch != run_batch:
        message = "The resume keeps the run's global batch of %d images instead of %d."
        logging.warning(message, run_batch, batch)
    settings = settings.replace(global_batch_size=run_batch)
    if start in ("", flags.get("checkpoint_dir")):
        return settings
    message = "checkpoint_dir=%s has no effect: the run resumes from %s."
    logging.warning(message, start, checkpoint)
    # In flags.cfg, `trained.find` would take it for the model; the run's own value may
    # be a stranger's. Without it, fs_checkpoint_dir is not valid.
    return settings.replace(checkpoint_dir="", fs_checkpoint_dir="")


def check_remote(settings: Settings, checkpoint: str | None) -> None:
    """Checks the folders on another file system, before anything is trained.

    Args:
        settings: the `Settings` as they will be used.
        checkpoint: folder of the checkpoint to resume from, or None.

    Raises:
        ValueError: fs_dir_for_save holds another run, whose results would be replaced;
            or checkpoint_dir holds a newer checkpoint than those of fs_checkpoint_dir.
    """
    storage = settings.checkpoints
    saved = fs_options.remote_dir(storage, "fs_dir_for_save")
    stored = [path for _, path in catalog.find_all(saved)][-1:] if saved else []
    paths = [*stored, *filter(None, [checkpoint])]
    runs = [manifest.read(path)["state"].get("run") for path in paths]
    same = not stored or (checkpoint and runs[0] == runs[1])
    rule = "fs_dir_for_save must not hold another run"
    require(same, rule, "Choose another folder", fs_dir_for_save=saved)
    source = fs_options.remote_dir(storage, "fs_checkpoint_dir")
    if source and not checkpoint:
        start = catalog.resolve(storage.checkpoint_dir)
        copied = files.exists(files.join(source, files.name(start), manifest.NAME))
        rule = f"The newest checkpoint in checkpoint_dir must be one of {source}"
        advice = "Remove the others, or choose another checkpoint_dir"
        same = copied or start == storage.checkpoint_dir
        require(same, rule, advice, checkpoint_dir=start)


def make_plan(settings: Settings, checkpoint: str | None, batches) -> Plan:
    """Counts the steps and scales the learning rate; see `Plan`.

    Raises:
        ValueError: the learning rate depends on the length of an epoch, and neither
            the data nor the settings define it; or the options of the learning rate do
            not fit the run.
    """
    training, rates = settings.training, settings.learning_rate
    if batches.num_examples is None and "num_sample_per_epoch" not in settings.given:
        message = (
            "The number of examples in an epoch is unknown. Set num_sample_per_epoch "
            "(PLSC: set_train_image_num), or use a tf.data.Dataset with "
            ".apply(tf.data.experimental.assert_cardinality(n))."
        )
        if schedules.depends_on_length(rates):
            raise ValueError(f"{message} The learning rate depends on this number.")
        logging.warning("%s Only the ETA depends on this number.", message)
    examples = batches.num_examples or settings.dataset.num_sample_per_epoch
    batch, stop = training.global_batch_size, training.stop_at_step
    steps_per_epoch = -(-examples // batch)
    planned = steps_per_epoch * training.num_epochs
    rate = schedules.scaled_rate(rates.learning_rate, batch, rates.lr_base_batch_size)
    schedule = schedules.build(rates, rate, steps_per_epoch, planned, stop)
    total = min(planned, stop or planned)
    return Plan(settings, checkpoint, steps_per_epoch, total, rate, schedule)
