"""The `train` command: trains, verifies, saves and exports a model; writes a report."""

import functools
import threading

import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.jobs import dimension_reduction, export, results, resume_changes, workers
from plsc_tf.jobs.builders import data, hooks, recipe
from plsc_tf.jobs.builders.reporting import RunReporter
from plsc_tf.jobs.origins import of_run as origins_of_run
from plsc_tf.jobs.parts import NONE
from plsc_tf.jobs.run_facts import log_run
from plsc_tf.jobs.run_plan import check_remote, choose_folder, make_plan
from plsc_tf.jobs.teachers import load_distillation
from plsc_tf.jobs.trained import start_from
from plsc_tf.options.flagfiles import write_flags
from plsc_tf.parallel import preflight
from plsc_tf.parallel.strategy import make_deterministic
from plsc_tf.reporting.recorder import Guard, GuardedCallback, StepLines, exact_loss
from plsc_tf.storage import files, fs_options
from plsc_tf.storage.writer_lock import WriterLock
from plsc_tf.training.callbacks import TrainingLog, Verification
from plsc_tf.training.checkpoint import Checkpoint
from plsc_tf.training.ending import Termination, rescue as rescue_steps
from plsc_tf.training.sentinel import Sentinel
from plsc_tf.training.watchdog import Watchdog

IN_USE = "Wait until it ends, set another model_save_dir, or start over with --restart."


def train(settings, termination=None, parts=NONE):
    """Starts or resumes the training that the settings describe.

    Args:
        settings: the `Settings`.
        termination: the `Termination` that listens to signals meanwhile, if this is the
            main thread; None makes one.
        parts: the `Parts` given in Python; all workers of a cluster must pass the same.

    Returns:
        (the settings as they were used, the results). In a cluster only the chief gets
        the results; the other workers get None. The results are a dict, also written
        to `<model_save_dir>/results.json`: `steps`, `loss`, `loss_type`,
        `num_classes`, `sample_rate`, `images_per_second` (after a resume, of the later
        steps), `seconds_per_step`, `seconds_per_epoch`, `verification`,
        `checkpoint_dir`, `export_dir`. If they apply, the dict also has
        `training_<metric>`, `test`, `raw_pixels` and `unsaved_steps`.
    """
    if settings.training.deterministic:
        make_deterministic(settings.training.seed)
    if (tf32 := settings.performance.tf32) is not None:
        tf.config.experimental.enable_tensor_float_32_execution(tf32)
    # TensorFlow honors this setting only before its first operation.
    tf.debugging.set_log_device_placement(settings.logging.log_device_placement)
    termination = termination or Termination()
    if threading.current_thread() is threading.main_thread():
        termination.listen()
    try:
        with workers.joined(settings) as joined, WriterLock(IN_USE) as lock:
            termination.listen_again()
            return _train(settings, joined, termination, parts, lock)
    finally:
        termination.stop_listening()


def _train(settings, joined, termination, parts, lock):
    group, strategy = joined.group, joined.strategy
    settings = hooks.turn_off_omitted(parts.drop_replaced_targets(settings))
    settings, checkpoint, batches = _open(settings, joined, parts, lock)
    size = strategy.num_replicas_in_sync, group.size
    origin = resume_changes.of_run(settings, checkpoint, batches, *size)
    own = parts.source is not None
    origin["origins"] = origins_of_run(settings, batches.source, checkpoint, own)
    save_dir, losses = settings.checkpoints.model_save_dir, []
    if settings.logging.save_losses and group.is_chief:
        path = files.join(save_dir, "losses.txt")
        losses = [GuardedCallback(StepLines(path, exact_loss), path)]
    pairs, test = data.load_pairs(settings, parts.pairs), data.load_test(settings)
    recipe.check_accumulation(settings, strategy.num_replicas_in_sync)
    export.check(settings)
    plan = make_plan(settings, checkpoint, batches)
    earlier = results.read(save_dir)  # before training, so a bad file fails early
    half = recipe.backbone_precision(settings)
    reporter = RunReporter(settings, group, origin["starts"])
    model = recipe.build_model(settings, strategy, half, parts.backbone)
    model.trainer.group, model.trainer.votes = group, joined.votes
    reduction = dimension_reduction.begin(model, settings)
    distillation = load_distillation(settings.distillation, model)
    recipe.compile_model(model, settings, plan.schedule, parts.optimizer, distillation)
    checkpoints = _checkpoints(settings, parts, origin)
    if group.is_chief:
        checkpoints.lock = lock
    start = _load_weights(model, plan, checkpoints)
    if group.is_chief:
        write_flags(settings, files.join(save_dir, "flags.cfg"), parts.remark())
    verify = Verification(
        pairs,
        every_n_steps=settings.evaluation.eval_every_n_steps,
        batch_size=settings.evaluation.test_batch_size,
        recorder=reporter.recorder,
        after_epochs=settings.checkpoints.save_best,
    )
    verify.set_model(model)
    others = [verify, *reporter.callbacks()]
    others += dimension_reduction.callbacks(model, settings, reduction, checkpoints.run)
    others.append(checkpoints)
    log = _training_log(plan, reporter, others)
    callbacks = [*losses, termination, log, *others]
    guard = Guard("the description of the run")
    guard(lambda: log_run(plan, model, batches, pairs, parts))
    reporter.begin(model)
    before = model.trainer.position.global_step

    def rescue(error):
        log.pause()
        rescue_steps(model, checkpoints, termination, before, error)
        reporter.close()

    history = _fit(model, batches, plan, callbacks, start, rescue)
    outcome = {}
    upload = functools.partial(
        fs_options.upload_end, settings.checkpoints, skip=catalog.REMAINS
    )
    try:
        verify.verify(model.trainer.position.global_step)
        _note(outcome, plan, model, history, log, verify, earlier)
        if group.is_chief:
            results.write(save_dir, outcome)  # before anything else can fail
        _finish(outcome, settings, model, verify, test)
        reporter.finish(model, outcome, batches, pairs)
    except BaseException:
        reporter.close(model, outcome, batches)
        if group.is_chief:
            Guard("the uploaded results")(upload)
        raise
    if not group.is_chief:
        return settings, None
    upload()
    return settings, outcome


def _open(settings, joined, parts, lock):
    """Determines the run's folder and opens its data; all workers agree on both.

    Returns:
        (settings as they will be used, checkpoint to resume from or None, batches).
    """
    group = joined.group
    settings = recipe.complete(settings)
    if group.is_chief:
        fs_options.download_start(settings.checkpoints)
    group.gather("the chief is ready", None)
    if not group.is_chief:
        fs_options.download_start(settings.checkpoints)
    replicas = joined.strategy.num_replicas_in_sync
    settings, checkpoint = choose_folder(
        settings, replicas, group=group, given=parts.given(), lock=lock
    )
    check_remote(settings, checkpoint)
    if group.size > 1:
        workers.check_shared(group, settings.checkpoints.model_save_dir)
    source, size = parts.open_source(settings), settings.training.global_batch_size
    batches = data.load_batches(settings, size, source=source)
    settings = data.with_classes(settings, batches)
    if group.size > 1:
        facts = {"data": batches.fingerprint(), **parts.checksums()}
        preflight.compare(group.gather("facts", facts))
    return settings, checkpoint, batches


def _fit(model, batches, plan, callbacks, start, rescue):
    """Trains the model, with a time limit per step if step_timeout is set.

    Args:
        start: keyword arguments of `fit` that set the epoch and step to start at.
        rescue: function called with an error that ends the training, before the error
            is raised again.

    Returns:
        The `keras.callbacks.History`.
    """
    settings, before = plan.settings, model.trainer.position.global_step
    save_dir = settings.checkpoints.model_save_dir
    limit = settings.cluster.step_timeout
    watchdog = [Watchdog(limit, model.trainer.group)] if limit else []
    try:
        history = model.fit(
            batches,
            epochs=settings.training.num_epochs,
            verbose=0,
            callbacks=[*watchdog, *callbacks],
            stop_at_step=settings.training.stop_at_step or None,
            sentinel=Sentinel(save_dir, settings.precision.on_nonfinite),
            **start,
        )
    except BaseException as error:
        rescue(error)
        raise
    finally:
        for one in watchdog:
            one.stop()
    if model.trainer.position.global_step == before:
        logging.info(
            f"Nothing to train: the run is at step {before} of {plan.total_steps}. "
            "Increase num_epochs or set stop_at_step=0, or start over with --restart."
        )
    return history


def _checkpoints(settings, parts, origin):
    """Returns the `Checkpoint` callback that the settings describe."""
    given = settings.checkpoints
    return Checkpoint(
        given.model_save_dir,
        max_to_keep=given.keep_checkpoint_max,
        every_n_steps=given.save_checkpoints_steps,
        every_n_epochs=given.save_checkpoints_epochs,
        weights_only=given.save_weights_only,
        background=given.save_in_background,
        save_best=given.save_best,
        on_error=given.on_save_error,
        on_damaged=given.on_damaged_checkpoint,
        extra={"flags": settings.as_dict(), "given": parts.given(), **origin},
    )


def _load_weights(model, plan, checkpoints):
    """Loads the run's checkpoint or `checkpoint_dir`; returns arguments for `fit`."""
    if plan.checkpoint:
        # `resume_changes` has already compared the options.
        start = checkpoints.restore(model, plan.checkpoint, allow_changes=True)
        at = model.trainer.position
        place = f"epoch {at.epoch}, step {at.global_step}"
        logging.info(f"Resuming {plan.checkpoint} at {place}.")
        return start
    if plan.settings.checkpoints.checkpoint_dir:
        start_from(model, plan.settings, checkpoints.extra["data"]["contents"])
    return {"initial_epoch": 0, "initial_step": 0}


def _training_log(plan, reporter, others):
    settings = plan.settings
    return TrainingLog(
        every_n_steps=settings.logging.log_loss_every_n_iters,
        total_steps=plan.total_steps,
        global_batch_size=settings.training.global_batch_size,
        steps_per_epoch=plan.steps_per_epoch,
        recorder=reporter.recorder,
        lines=hooks.LOGGING in settings.logging.hooks,
        interruptions=others,
    )


def _note(outcome, plan, model, history, log, verify, earlier):
    """Adds the results of training and verification to the dict `outcome`."""
    settings, steps = plan.settings, model.trainer.position.global_step
    figures = history.history
    checkpoints = catalog.find_all(settings.checkpoints.model_save_dir)
    # With on_save_error=continue, there may be no checkpoint.
    saved, checkpoint = checkpoints[-1] if checkpoints else (0, None)
    if "loss" not in figures and earlier.get("steps") == steps:
        outcome |= earlier  # nothing was trained, so the figures still apply
        # The run may be a stranger's, and its export a program: export again.
        outcome["export_dir"] = None
        outcome.pop("unsaved_steps", None)
    else:
        speed, loss = log.images_per_second, (figures.get("loss") or [None])[-1]
        if loss is None and checkpoint:
            loss = manifest.read(checkpoint)["state"].get("logs", {}).get("loss")
        seconds = speed and settings.training.global_batch_size / speed
        outcome |= {
            "steps": steps,
            "loss": loss,
            "loss_type": settings.head.loss_type,
            "num_classes": model.head.num_classes,
            "sample_rate": settings.head.sample_rate,
            "images_per_second": speed,
            # MindSpore's TimeMonitor logs these two. The means exclude the first step.
            "seconds_per_step": seconds,
            "seconds_per_epoch": seconds and seconds * plan.steps_per_epoch,
            "export_dir": None,
        }
        ranked = [name for name in model.ranked_metrics if name in figures]
        outcome |= {f"training_{name}": figures[name][-1] for name in ranked}
    if steps > saved and settings.checkpoints.on_save_error == "continue":
        outcome["unsaved_steps"] = steps - saved
    outcome["verification"] = results.verification_figures(verify.results)
    outcome["checkpoint_dir"] = checkpoint


def _finish(outcome, settings, model, verify, test):
    """Evaluates the test split, exports the model, and writes results.json."""
    save_dir = settings.checkpoints.model_save_dir
    if test is not None:
        with model.trainer.averaged():
            outcome["test"] = results.test_figures(model, test)
    if settings.evaluation.raw_pixel_baseline:
        outcome["raw_pixels"] = results.raw_pixels(verify.pairs, model.image_size)
    model.synchronize_statistics()
    if not model.trainer.group.is_chief:
        return
    results.write(save_dir, outcome)
    if settings.export.export_at_end:
        given = model, outcome["checkpoint_dir"], verify.pairs
        with model.trainer.averaged():
            outcome["export_dir"] = export.export_at_end(settings, *given)
        results.write(save_dir, outcome)
