"""Stage 1: saves weights-only snapshots in addition to a run's checkpoints."""

import dataclasses
import math
from typing import Any

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.requirements import require
from plsc_tf.storage import files
from plsc_tf.training.checkpoint import Checkpoint

NAME = "snapshots"


@dataclasses.dataclass(eq=False, repr=False)
class Snapshots(Checkpoint):
    """Saves the weights of many steps; stage 2 uses their principal components.

    A snapshot is a weights-only checkpoint, `<directory>/step_<n>/`, from which a run
    can start (checkpoint_dir). It includes the class weights if the scope is "all" or
    if they are no larger than the backbone.

    Args:
        directory: the snapshots' folder, on any store.
        every_n_steps: number of steps between snapshots; if 0, `per_epoch` applies.
        per_epoch: number of evenly spaced snapshots in each epoch, or 0.
        start_epoch: number of epochs to complete before the first snapshot.
        max_to_keep: number of newest snapshots to keep; 0 keeps all.
        scope: "backbone" or "all".
        of_run: name of the training, `Checkpoint.run`, which a resume keeps; None if it
            is not known. Then the snapshots of others count as its own in a resume.
        Others: see `Checkpoint`.

    Raises:
        FolderInUseError: at the start of training, another run is writing to the
            folder.
        ValueError: at the start of training, the number of steps in an epoch is unknown
            but `per_epoch` needs it, or the folder holds another run's snapshots.
    """

    things, option = "snapshots", "snapshot_dir"
    averages = False

    _: dataclasses.KW_ONLY
    per_epoch: int = 0
    start_epoch: int = 0
    max_to_keep: int = 40
    scope: str = "backbone"
    of_run: str | None = None
    weights_only: bool = dataclasses.field(default=True, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epoch_steps: Any = None
        self.run = self.of_run

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Checks the options and rejects a folder with another run's snapshots."""
        self._epoch_steps = self.params.get("steps")
        rule = "snapshots_per_epoch needs data of known length"
        advice, count = "Set snapshot_every_n_steps instead", self.per_epoch
        require(not count or self._epoch_steps, rule, advice, snapshots_per_epoch=count)
        self._continues = bool(self._step())
        if self._continues and self._is_chief():
            files.prepare(self.directory)
            found = [path for _, path in catalog.find_all(self.directory)]
            runs = {manifest.read(path)["state"].get("run") for path in found}
            rule = f"{self.directory} holds snapshots of another run"
            require(runs <= {self.run}, rule, "Set another snapshot_dir")
        super().on_train_begin(logs)

    def wants(self, step: int) -> bool:
        """Returns whether a snapshot is due after this step of the current epoch.

        Args:
            step: the global step, as in `position.global_step`.
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
        """Does nothing: snapshots depend on steps only."""

    def on_train_end(self, logs: dict | None = None) -> None:
        """Waits until all snapshots are written."""
        self.wait()
        self._give_up()

    def _save(self, name, logs):
        """Saves a snapshot; one that an interrupted run saved may be of other steps."""
        self.wait()
        path = files.join(self.directory, name)
        if self._is_chief() and files.exists(path):
            catalog.remove(path)
        super()._save(name, logs)

    def _content(self, logs):
        content = super()._content(logs)
        shapes = [rows.shape for rows in self.model.head.arrays().values()]
        numbers = sum(math.prod(shape) for shape in shapes)
        if self.scope != "all" and numbers > self.model.backbone.count_params():
            content.arrays = {}
        return content
