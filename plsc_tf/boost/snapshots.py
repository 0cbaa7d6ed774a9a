"""Stage 1: weights-only snapshots besides the checkpoints of a training."""

import functools
import math

import keras
from absl import logging

from plsc_tf.checkpoints import catalog, writer
from plsc_tf.checkpoints.writer import BackgroundSaver
from plsc_tf.storage import files
from plsc_tf.storage.writer_lock import WriterLock
from plsc_tf.training import state

NAME = "snapshots"


class Snapshots(keras.callbacks.Callback):
    """Saves the weights of many steps, whose principal components stage 2 uses.

    A snapshot is a checkpoint of weights, `<directory>/step_<n>/`, and a training can
    start from it (checkpoint_dir). The class weights are in it with scope "all", and
    where they are no larger than the backbone.

    Args:
        directory: their folder, on any store.
        every_n_steps: steps between two of them; 0: none by steps.
        per_epoch: snapshots in each epoch, evenly spread; 0: none by epochs.
        start_epoch: epochs that are done before the first one.
        max_to_keep: newest ones that stay; 0 keeps all.
        scope: "backbone" or "all".
        background: training goes on while files are written.
        extra: dict that is stored with each.

    Raises:
        FolderInUseError: when training begins: another one writes into the folder.
        ValueError: when training begins: there are more snapshots asked for in an epoch
            than it has steps, or the folder holds those of another training.
    """

    def __init__(  # noqa: PLR0913 - every one but the first has a default
        self,
        directory,
        *,
        every_n_steps=0,
        per_epoch=0,
        start_epoch=0,
        max_to_keep=40,
        scope="backbone",
        background=True,
        extra=None,
    ):
        super().__init__()
        self.directory = str(directory)
        self.every_n_steps = every_n_steps
        self.per_epoch = per_epoch
        self._epoch_steps = None
        self.start_epoch = start_epoch
        self.max_to_keep = max_to_keep
        self.scope = scope
        self.background = background
        self.extra = extra or {}
        self._saver = BackgroundSaver()
        self._lock = WriterLock("Wait until it ends, or give another snapshot_dir.")

    def on_train_begin(self, logs=None):
        """Refuses a folder with the snapshots of another training."""
        self._epoch_steps = self.params.get("steps")
        if self.per_epoch and not self._epoch_steps:
            raise ValueError(
                "An epoch has an unknown number of steps. Received: "
                f"snapshots_per_epoch={self.per_epoch}. Use snapshot_every_n_steps."
            )
        if self.per_epoch and self.per_epoch > self._epoch_steps:
            logging.warning(
                "An epoch has %d steps, fewer than snapshots_per_epoch=%d: after %d "
                "epochs (snapshot_start_epoch), each step gets a snapshot.",
                self._epoch_steps,
                self.per_epoch,
                self.start_epoch,
            )
            self.per_epoch = self._epoch_steps
        files.prepare(self.directory)
        if not self.model.trainer.group.is_chief:
            return
        if not self._lock.held:
            self._lock.acquire(self.directory)
        if not self.model.trainer.position.global_step and catalog.find_all(
            self.directory
        ):
            raise ValueError(
                f"{self.directory} holds snapshots of another training. Give another "
                "snapshot_dir."
            )
        catalog.sweep(self.directory)

    def wants(self, step):
        """Whether a snapshot is due after this step of the running epoch.

        Args:
            step: counted as `position.global_step`.
        """
        position = self.model.trainer.position
        if position.epoch < self.start_epoch:
            return False
        if self.every_n_steps:
            return step % self.every_n_steps == 0
        count, whole = self.per_epoch, self._epoch_steps
        done = position.step + step - position.global_step
        return count * done // whole > count * (done - 1) // whole

    def on_train_batch_end(self, batch, logs=None):
        """Takes a snapshot where one is due."""
        self._saver.check()
        if self.wants(self.model.trainer.position.global_step):
            self.take()

    def on_train_end(self, logs=None):
        """Waits until all are written."""
        self._saver.wait()
        self._lock.release()
        if self.model.trainer.group.is_chief:
            count = len(catalog.find_all(self.directory))
            logging.info("%d snapshots in %s", count, self.directory)
            if not count:
                logging.warning(
                    "The training ended before the first snapshot was due, with "
                    "snapshot_start_epoch=%d.",
                    self.start_epoch,
                )

    def on_train_abandoned(self):
        """Releases the folder after an error."""
        try:
            if self._lock.held:
                self._saver.wait()
        except Exception as error:  # noqa: BLE001 - the first error is the one to raise
            logging.error("%s", error)
        finally:
            self._lock.release()

    def take(self):
        """Takes a snapshot now, unless an interrupted run took it before."""
        model, step = self.model, self.model.trainer.position.global_step
        path = files.join(self.directory, f"step_{step:08d}")
        self._saver.wait()
        exists = model.trainer.group.is_chief and files.exists(path)
        if model.trainer.group.gather(f"snapshot {step}", exists)[0]:
            return
        content = state.snapshot(
            model, dict(self.extra), weights_only=True, held=self.background
        )
        if not self._with_head():
            content.arrays = {}
        write = functools.partial(self._write, path, content)
        if self.background:
            self._saver.submit(write)
        else:
            write()

    def _with_head(self):
        model = self.model
        sizes = [rows.shape for rows in model.head.arrays().values()]
        numbers = sum(math.prod(shape) for shape in sizes)
        return self.scope == "all" or numbers <= model.backbone.count_params()

    def _write(self, path, content):
        writer.save(
            path, content, self.model.trainer.group, self.model.trainer.heartbeat
        )
        if self.model.trainer.group.is_chief and self.max_to_keep:
            for _, old in catalog.find_all(self.directory)[: -self.max_to_keep]:
                catalog.remove(old)
