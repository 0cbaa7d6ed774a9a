"""Contains the Keras callback that saves checkpoints and resumes training."""

import contextlib
import dataclasses
import functools
import secrets
import time

import keras
from absl import logging

from plsc_tf.checkpoints import catalog, manifest, writer
from plsc_tf.requirements import require, require_one_of
from plsc_tf.storage import files, outputs
from plsc_tf.storage.writer_lock import WriterLock
from plsc_tf.training import model_config, state
from plsc_tf.training.circular import Classifier


@dataclasses.dataclass(eq=False, repr=False)
class Checkpoint(keras.callbacks.Callback):
    """Saves `<directory>/<epoch>/` after each epoch, as PLSC does.

    Only one process or callback at a time can save to a directory. Only checkpoints of
    this training are removed when newer ones are saved.

    Example:
            saved = plsc_tf.Checkpoint("runs/ms1m", every_n_steps=2000)
            model.fit(faces, epochs=20, callbacks=[saved], **saved.restore(model))

    Args:
        directory: the run's folder, on any supported storage.
        max_to_keep: number of newest checkpoints to keep; 0 or less keeps all.
        every_n_steps: also save `<directory>/step_<n>/` every n steps.
        every_n_epochs: epochs between two checkpoints; 0 saves no checkpoints by epoch,
            only by steps and at the end of training.
        weights_only: omit data that only a resume needs, which at least halves the
            size.
        background: continue training while files are written, which takes memory for
            at most one copy of weights and slots; if False, training waits.
        save_best: also save and keep the epoch with the best mean `…_accuracy` of
            `Verification`; the states of checkpoints have it as "best".
        on_error: "stop" the training if a checkpoint cannot be written, or "continue"
            without it. Older checkpoints are kept in both cases.
        on_damaged: action of `restore` if the newest checkpoint is damaged: "stop", or
            load the "previous" one.
        extra: dict that is stored with each checkpoint.

    Attributes:
        lock: the directory's `WriterLock`. If it is not held when `fit` begins, the
            callback acquires it and releases it at the end of `fit`.

    Raises:
        FolderInUseError: when training begins, if another run saves to the
            directory.
        ValueError: an argument has an unknown value; when training begins, if the
            directory holds checkpoints of another run.
    """

    # Overridden by `Snapshots`.
    things, option = "checkpoints", "directory"
    averages = True

    directory: str
    _: dataclasses.KW_ONLY
    max_to_keep: int = 5
    every_n_steps: int = 0
    every_n_epochs: int = 1
    weights_only: bool = False
    background: bool = True
    save_best: bool = False
    on_error: str = "stop"
    on_damaged: str = "stop"
    extra: dict | None = None

    def __post_init__(self) -> None:
        super().__init__()
        require_one_of(("stop", "continue"), on_error=self.on_error)
        require_one_of(("stop", "previous"), on_damaged=self.on_damaged)
        self.directory = str(self.directory)
        self.extra = self.extra or {}
        self.lock = WriterLock(f"Wait until it ends, or set another {self.option}.")
        self._took_lock = False
        self.saved_step: int | None = None
        # Names this training in the states of its checkpoints.
        self.run: str | None = secrets.token_hex(8)
        self._saver, self._continues = writer.BackgroundSaver(), False
        self._best: dict | None = None  # {"epoch", "accuracy", "of"}

    def set_model(self, model: Classifier) -> None:
        """Lets the trainer wait for a checkpoint being written, see `Sentinel`."""
        super().set_model(model)
        model.trainer.finish_saving = self.wait

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Acquires the lock; refuses a directory with another run's checkpoints.

        Raises:
            FolderInUseError: another run saves to the directory.
            ValueError: the directory holds checkpoints of another run, or of epochs
                that would be trained again; or a link leads out of it.
        """
        files.prepare(self.directory)
        if self._is_chief():
            if not self.lock.held:
                self.lock.acquire(self.directory)
                self._took_lock = True
            outputs.require_closed(self.directory)
            names = [files.name(path) for _, path in catalog.find_all(self.directory)]
            epoch = self.model.trainer.position.epoch
            later = any(name.isdigit() and int(name) >= epoch for name in names)
            free = not names or (self._continues and not later)
            rule = (
                f"{self.directory} holds {self.things} of another run or later epochs"
            )
            other = f"set another {self.option}"
            require(free, rule, f"Resume with Checkpoint.restore(model), or {other}")
            catalog.sweep(self.directory)
        self._continues = True

    def restore(
        self, model: Classifier, path: str | None = None, allow_changes: bool = False
    ) -> dict[str, int]:
        """Loads the newest checkpoint of the directory, if any.

        Args:
            model: the `Classifier`; if it is not compiled, only its weights are loaded.
            path: the checkpoint that `catalog.newest` has just returned, if known.
            allow_changes: whether the head's loss, scale and label smoothing may differ
                from the checkpoint's.

        Returns:
            `{"initial_epoch": …, "initial_step": …}`, arguments for `model.fit`.

        Raises:
            DamagedCheckpointError: the checkpoint's files have changed since they were
                written, and `on_damaged` is "stop".
            ValueError: the checkpoint has another network, head, optimizer or loss.
            OSError: the directory cannot be accessed.
        """
        if path is None:
            files.prepare(self.directory)
            # The lock is needed only for moving damaged checkpoints aside; otherwise
            # nothing in the directory changes.
            group = model.trainer.group
            changes = self.on_damaged == "previous" and group.is_chief
            free = contextlib.nullcontext()
            with self.lock.holding(self.directory) if changes else free:
                options: dict = {"on_damaged": self.on_damaged, "group": group}
                path = catalog.newest(self.directory, **options)
        if path is not None and model.trainer.updater is None:
            stored = state.restore_weights(path, model)
            state.restore_head_state(model, stored)
            text = "Only the weights of %s are loaded: the model is not compiled."
            logging.info(text, path)
        elif path is not None:
            stored = manifest.read(path)["state"]
            if not allow_changes:
                model_config.check_head(path, stored, model.head)
            state.restore(path, model, verified=True)
            self.run = stored.get("run")  # older checkpoints have none
            self._best = stored.get("best")
            self.saved_step = model.trainer.position.global_step
            self._continues = True
        position = model.trainer.position
        return {"initial_epoch": position.epoch, "initial_step": position.step}

    def wants(self, step: int) -> bool:
        """Returns whether to save after this step, see `several_steps`."""
        return bool(self.every_n_steps) and step % self.every_n_steps == 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Saves after every `every_n_steps` steps."""
        if not self.writing:
            self.wait()  # handles an error as soon as it is known
        if self.wants(self._step()):
            self.save(f"step_{self._step():08d}", logs)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Saves a complete epoch under its number, an incomplete one under its step."""
        finished = self.model.trainer.position.epoch
        if finished == epoch:  # training stopped in the middle of the epoch
            self.save(f"step_{self._step():08d}", logs)
            return
        is_best = self.save_best and self._is_best(epoch, logs or {})
        if is_best or (self.every_n_epochs and finished % self.every_n_epochs == 0):
            self.save(str(epoch), logs)

    def on_train_end(self, logs: dict | None = None) -> None:
        """Saves the last step unless it is saved already, and waits for all files."""
        self.wait()
        if self.saved_step != self._step():
            self.save(f"step_{self._step():08d}", logs)
        self.wait()
        self._give_up()

    def on_train_abandoned(self) -> None:
        """Releases the lock after an error, once all files are written."""
        try:
            if self._took_lock:
                self.wait()
        except Exception as error:  # noqa: BLE001 - raise the training's error instead
            logging.error("%s", error)
        finally:
            self._give_up()

    def save(self, name: str, logs: dict | None = None) -> None:
        """Saves a checkpoint now.

        A `step_…` checkpoint is not written if this step is already saved.

        Args:
            name: the checkpoint's folder name in the directory.
            logs: numbers to store with the checkpoint.
        """
        if self.lock.held or not self._is_chief():
            self._save(name, logs)
        else:
            with self.lock.holding(self.directory):
                self._save(name, logs)
                self.wait()

    def _save(self, name, logs):
        if self.saved_step == self._step() and not name.isdigit():
            return
        # An error in the previous save must not prevent this one.
        self.wait()
        # Weights without training state are for inference, so save the averages.
        averaged = self.weights_only and self.averages
        with self.model.trainer.averaged() if averaged else contextlib.nullcontext():
            path, content = files.join(self.directory, name), self._content(logs)
            write = functools.partial(self._write, path, content)
            if self.background:
                write = functools.partial(self._saver.submit, write)
            if self._settle(write):
                self.saved_step = self._step()

    @property
    def writing(self) -> bool:
        """True while a checkpoint is being written in the background."""
        return self._saver.busy

    def wait(self) -> None:
        """Waits for a save in the background; handles its error as `on_error` says."""
        self._settle(self._saver.wait)

    def _content(self, logs):
        logs = {k: None if v is None else float(v) for k, v in (logs or {}).items()}
        stored = {**self.extra, "logs": logs, "run": self.run, "best": self._best}
        options = {"weights_only": self.weights_only, "held": self.background}
        return state.snapshot(self.model, stored, **options)

    def _give_up(self):
        if self._took_lock:
            self._took_lock = False
            self.lock.release()

    def _write(self, path, content):
        start = time.perf_counter()
        if self._is_chief():
            self.lock.check()
        trainer = self.model.trainer
        size = writer.save(path, content, trainer.group, trainer.heartbeat)
        if self._is_chief():
            seconds = time.perf_counter() - start
            logging.info("Saved %s: %.1f MB in %.1f s", path, size / 1e6, seconds)
            catalog.prune(self.directory, self.max_to_keep, self.run)

    def _settle(self, function):
        """Calls a function that may raise a save's error; returns whether it didn't."""
        try:
            function()
            return True
        except OSError as error:
            reason = str(error).removesuffix(".")
            problem = f"A checkpoint could not be saved in {self.directory}: {reason}"
            self.saved_step = None
            if self.on_error == "stop":
                raise files.StorageError(
                    f"{problem}. Older checkpoints are unchanged. To continue training "
                    "without this one, set --on_save_error=continue.",
                    error.errno,
                ) from error
            logging.error("%s. Training continues without it.", problem)
            return False

    def _is_best(self, epoch, logs):
        """Returns whether the epoch's mean verification accuracy is the best so far."""
        # Accuracies on the classes in training say nothing about embeddings.
        trained = self.model.ranked_metrics
        others = {*trained, *(f"val_{name}" for name in trained)}
        names = [n for n in logs if n.endswith("_accuracy") and n not in others]
        names = sorted(name for name in names if logs[name] is not None)
        if not names:
            logging.warning(
                f"Epoch {epoch} cannot be the best: it is not verified yet. Put a "
                "Verification with after_epochs=True before Checkpoint."
            )
            return False
        accuracy = float(sum(logs[name] for name in names) / len(names))
        if self._best and self._best.get("of", names) != names:
            text = "Epoch %d is no longer the best: it was verified on other sets."
            logging.warning(text, self._best["epoch"])
            self._best = None
        if self._best and accuracy <= self._best["accuracy"]:
            return False
        self._best = {"epoch": epoch, "accuracy": accuracy, "of": names}
        logging.info("Best so far: epoch %d, %.5f", epoch, accuracy)
        return True

    def _is_chief(self):
        return self.model.trainer.group.is_chief

    def _step(self):
        return self.model.trainer.position.global_step
