"""Stage 1: weights-only snapshots besides the checkpoints of a training."""

from __future__ import annotations

import math
from typing import Any

import keras
from absl import logging

from plsc_tf.checkpoints import catalog
from plsc_tf.storage import files
from plsc_tf.training.checkpoint import Checkpoint

NAME = "snapshots"


class Snapshots(Checkpoint):
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
        **options: of `Checkpoint`.

    Raises:
        FolderInUseError: when training begins: another one writes into the folder.
        ValueError: when training begins: there are more snapshots asked for in an epoch
            than it has steps, or the folder holds those of another training.
    """

    things, option = "snapshots", "snapshot_dir"
    averages = False

    def __init__(
        self,
        directory: str,
        *,
        every_n_steps: int = 0,
        per_epoch: int = 0,
        start_epoch: int = 0,
        max_to_keep: int = 40,
        scope: str = "backbone",
        **options,
    ) -> None:
        super().__init__(
            directory,
            every_n_steps=every_n_steps,
            max_to_keep=max_to_keep,
            weights_only=True,
            **options,
        )
        self.per_epoch = per_epoch
        self.start_epoch = start_epoch
        self.scope = scope
        self._epoch_steps: Any = None
        self._run = None  # those of an interrupted run count as well

    def set_model(self, model: Any) -> None:
        """Only checkpoints are waited for elsewhere."""
        keras.callbacks.Callback.set_model(self, model)

    def on_train_begin(self, logs: dict | None = None) -> None:
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
        self._continues = bool(self._step())
        super().on_train_begin(logs)

    def wants(self, step: int) -> bool:
        """Whether a snapshot is due after this step of the running epoch.

        Args:
            step: counted as `position.global_step`.
        """
        position = self.model.trainer.position
        if position.epoch < self.start_epoch:
            return False
        if self.every_n_steps:
            return super().wants(step)
        count, whole = self.per_epoch, self._epoch_steps
        done = position.step + step - position.global_step
        return count * done // whole > count * (done - 1) // whole

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Steps alone decide."""

    def on_train_end(self, logs: dict | None = None) -> None:
        """Waits until all are written."""
        self.wait()
        self._give_up()
        if self._is_chief():
            count = len(catalog.find_all(self.directory))
            logging.info("%d snapshots in %s", count, self.directory)
            if not count:
                logging.warning(
                    "The training ended before the first snapshot was due, with "
                    "snapshot_start_epoch=%d.",
                    self.start_epoch,
                )

    def _save(self, name, logs):
        """Takes a snapshot now, unless an interrupted run took it before."""
        self.wait()
        exists = self._is_chief() and files.exists(files.join(self.directory, name))
        if not self.model.trainer.group.gather(f"snapshot {name}", exists)[0]:
            super()._save(name, logs)

    def _content(self, logs, weights_only, more):
        content = super()._content(logs, weights_only, more)
        shapes = [rows.shape for rows in self.model.head.arrays().values()]
        numbers = sum(math.prod(shape) for shape in shapes)
        if self.scope != "all" and numbers > self.model.backbone.count_params():
            content.arrays = {}
        return content
