"""Plans a run before anything is built or trained."""

import dataclasses
import os
import pathlib

from absl import logging

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.jobs import resume_changes
from plsc_tf.jobs.parts import check_resumed
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.group import SingleWorker
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path
from plsc_tf.training import schedules


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a run, made before anything is trained.

    Attributes:
        settings: with global_batch_size and model_save_dir as they will be used.
        checkpoint: folder of the checkpoint to resume from, or None.
        steps_per_epoch: steps of an epoch.
        total_steps: steps of the whole run.
        rate: learning rate after scaling to the global batch.
        schedule: the Keras schedule of the rate; `stop_at_step` ends a run earlier
            without changing it.
    """

    settings: Settings
    checkpoint: str | None
    steps_per_epoch: int
    total_steps: int
    rate: float
    schedule: object


def choose_folder(
    settings, num_replicas, *, verify=True, group=None, given=(), lock=None
):
    """Chooses the folder and the global batch, and finds the checkpoint to resume.

    Args:
        settings: the requested `Settings`.
        num_replicas: for `batch_size`, the number of images per replica.
        verify: whether to check the folder, and every file of the checkpoint.
        group: the `Group` of workers, all of which must call this; None for
            one.
        given: names of the parts from Python, `Parts.given()`.
        lock: the `WriterLock` with which the chief takes the folder, before anything
            in it is read or changed; None: nothing will be written.

    Returns:
        (settings as they will be used, checkpoint folder or None).

    Raises:
        FolderInUseError: another training writes into the folder.
        ValueError: the folder cannot be written to, the requested global batch or
            options differ from the run's, or its newest checkpoint is damaged.
        OSError: the folder cannot be reached, which never means that it is empty.
    """
    save_dir, group = settings.checkpoints.model_save_dir, group or SingleWorker()
    requested = settings.training.global_batch_size
    batch = requested or settings.training.batch_size * num_replicas
    files.prepare(save_dir)
    if verify and group.is_chief:
        _check_folder(save_dir)
    if settings.checkpoints.restart:
        fresh, number = save_dir, 1
        while group.is_chief and files.exists(fresh):
            number += 1
            fresh = f"{save_dir.rstrip('/')}-{number}"
        if group.is_chief and lock is not None:
            lock.acquire(fresh)
        fresh = group.gather("fresh folder", fresh)[0]
        if fresh != save_dir:
            logging.info("Starting over in %s; %s stays as it is.", fresh, save_dir)
        settings = settings.replace(
            model_save_dir=fresh, global_batch_size=batch, restart=False
        )
        return settings, None
    if group.is_chief and lock is not None:
        lock.acquire(save_dir)
    checkpoint = _newest(settings, verify, group)
    if checkpoint is None:
        return settings.replace(global_batch_size=batch), None
    return _resumed(settings, checkpoint, batch, given), checkpoint


def _resumed(settings, checkpoint, batch, given):
    """The settings of a run that goes on; raises ValueError where it cannot."""
    save_dir = settings.checkpoints.model_save_dir
    stored = manifest.read(checkpoint)["state"]
    flags = stored.get("flags", {})
    if "global_batch_size" not in flags:
        raise ValueError(
            f"{checkpoint} was saved from Python, not by this command, which cannot "
            f"resume it. Start from its weights: --checkpoint_dir={checkpoint} "
            "--model_save_dir=<another folder>."
        )
    check_resumed(checkpoint, stored, given)
    resume_changes.find(checkpoint, settings)
    requested = settings.training.global_batch_size
    run_batch = flags["global_batch_size"]
    if requested and requested != run_batch:
        raise ValueError(
            f"The run in {save_dir} has global_batch_size={run_batch}, which a resume "
            f"keeps. Received: global_batch_size={requested}. Leave it out, or start a "
            f"new run from these weights: --checkpoint_dir={checkpoint} "
            "--model_save_dir=<another folder>."
        )
    if batch != run_batch:
        logging.warning(
            "A resume keeps the run's global batch of %d images, not %d.",
            run_batch,
            batch,
        )
    return settings.replace(global_batch_size=run_batch)


def _check_folder(save_dir):
    """Raises ValueError if a local run folder cannot be written to."""
    if not files.is_local(save_dir):
        return
    path = pathlib.Path(local_path(save_dir)).absolute()
    existing = next(one for one in (path, *path.parents) if one.exists())
    if not existing.is_dir():
        problem = "is a file"
    elif not os.access(existing, os.W_OK | os.X_OK):
        problem = "cannot be written to"
    else:
        return
    raise ValueError(
        "model_save_dir must be a folder for the run's files. Received: "
        f"model_save_dir={save_dir!r}, but {existing} {problem}."
    )


def _newest(settings, verify, group):
    save_dir = settings.checkpoints.model_save_dir
    if verify:
        on_damaged = settings.checkpoints.on_damaged_checkpoint
        return catalog.newest(save_dir, on_damaged=on_damaged, group=group)
    checkpoints = catalog.find_all(save_dir)
    return checkpoints[-1][1] if checkpoints else None


def make_plan(settings, checkpoint, batches):
    """Counts the steps and scales the learning rate; see `Plan`.

    Raises:
        ValueError: neither the data nor the settings say how long an epoch is, which
            the learning rate depends on, or the rate does not fit it.
    """
    length_given = "num_sample_per_epoch" in settings.given
    if batches.num_examples is None and not length_given:
        _unknown_length(settings)
    examples = batches.num_examples or settings.dataset.num_sample_per_epoch
    steps_per_epoch = -(-examples // settings.training.global_batch_size)
    planned = steps_per_epoch * settings.training.num_epochs
    total = min(planned, settings.training.stop_at_step or planned)
    rate = schedules.scaled_rate(
        settings.learning_rate.learning_rate,
        settings.training.global_batch_size,
        settings.learning_rate.lr_base_batch_size,
    )
    schedule = schedules.build(
        settings.learning_rate,
        schedules.Run(
            settings.training.global_batch_size,
            steps_per_epoch,
            planned,
            settings.training.stop_at_step,
        ),
    )
    return Plan(settings, checkpoint, steps_per_epoch, total, rate, schedule)


def _unknown_length(settings):
    """Raises ValueError if the learning rate depends on an unknown length."""
    message = (
        "The data does not say how many examples an epoch has. Expected: "
        "num_sample_per_epoch (in a script of PLSC: set_train_image_num), or a "
        "tf.data.Dataset with .apply(tf.data.experimental.assert_cardinality(n)). "
        f"Received: num_sample_per_epoch={settings.dataset.num_sample_per_epoch}, the "
        "default, which is of PLSC's data set."
    )
    if schedules.depends_on_length(settings.learning_rate):
        raise ValueError(f"{message} The learning rate depends on it.")
    logging.warning(
        "%s The learning rate does not depend on it, the ETA does.", message
    )
