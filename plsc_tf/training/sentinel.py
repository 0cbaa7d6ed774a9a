"""Handles steps whose loss or gradients contain NaN or infinity."""

import dataclasses
import io
import json
import os
from typing import Any

import keras
import numpy as np
from absl import logging

from plsc_tf.checkpoints import catalog
from plsc_tf.requirements import require, require_one_of
from plsc_tf.storage import files
from plsc_tf.training import diagnosis, state
from plsc_tf.training.circular import Classifier

ACTIONS = ("stop", "rollback", "skip")


class Sentinel:
    """Reports a step with NaN or infinity, and stops, rolls back or skips the batch.

    Pass it to `model.fit(..., sentinel=Sentinel(...))`. The trainer calls it if a step
    produced NaN or infinity that the loss scale does not explain
    (`LossScale.explains_skip`); such a step has not changed the weights. With a
    directory, the sentinel writes `<directory>/nonfinite/step_<n>.npz` with the global
    batch (images, labels, weights, including padding) and `step_<n>.json` with the
    first tensor that contains NaN or infinity. It continues according to `action`:

    - "stop": raises FloatingPointError. A resumed run reads the same batch again.
    - "rollback": loads weights, optimizer slots, random states and loss scale from the
      newest checkpoint in `directory` whose weights are finite. Training continues with
      the next batch; the step count and the learning rate are not rolled back.
    - "skip": continues with the weights from before the step.

    Args:
        directory: the run's folder; without one, it writes no files and cannot roll
            back.
        action: "stop", "rollback" or "skip".
        limit: maximum number of rollbacks or skips; one more stops the run.

    Raises:
        ValueError: the action is unknown, or the limit is below 1.

    Attributes:
        count: number of steps with NaN or infinity so far.
    """

    def __init__(self, directory: str = "", action: str = "stop", *, limit: int = 5):
        require_one_of(ACTIONS, action=action)
        require(limit >= 1, "limit must be at least 1", limit=limit)
        self.directory = os.fspath(directory)
        self.action, self.limit, self.count = action, limit, 0

    def handle(self, model: Classifier, batch: Any) -> None:
        """Handles the step that has just failed; returns if the run continues.

        Args:
            model: the compiled `Classifier`; its position is before the step.
            batch: per-replica tensors of the step, as passed to `Trainer.run_step`.

        Raises:
            FloatingPointError: the run must stop; names the tensor, step and files.
        """
        self.count += 1
        step = model.trainer.position.global_step + 1
        finding = diagnosis.first_nonfinite(model, batch)
        message, advice = diagnosis.describe(finding, step)
        if self.directory:
            path = self._write(model, batch, step, finding)
            message += f" Batch and report: {path}."
        if model.loss_scale is not None:
            scale = float(model.loss_scale.value())
            message += f" The loss scale ({scale:g}) cannot be lowered any further."
        if self.action == "stop" or self.count > self.limit:
            fix = "set on_nonfinite=skip or rollback to continue without this batch"
            if self.action != "stop":
                fix = f"find the cause: there were more than {self.limit} such steps"
            raise FloatingPointError(
                f"{message} This step did not change the weights. {advice}, or {fix}."
            )
        done = "The batch is skipped"
        if self.action == "rollback":
            path = self._roll_back(model, message)
            done = f"Rolled back to the weights of {path}; continuing after the batch"
        logging.warning("%s %s.", message, done)

    def _write(self, model, batch, step, finding):
        """Writes the batch and the report; returns the report's path."""
        path = os.path.join(self.directory, "nonfinite", f"step_{step:08d}")
        images, labels, weights = diagnosis.global_batch(model, batch)
        if model.trainer.group.is_chief:
            files.make_dirs(os.path.dirname(path))
            buffer = io.BytesIO()
            np.savez_compressed(buffer, images=images, labels=labels, weights=weights)
            files.write(f"{path}.npz", buffer.getvalue())
            report = self._report(model, labels, step, finding)
            files.write(f"{path}.json", f"{json.dumps(report, indent=1)}\n".encode())
        return f"{path}.json"

    def _report(self, model, labels, step, finding):
        position = model.trainer.position
        rate = keras.ops.convert_to_numpy(model.optimizer.learning_rate)
        report = {
            "step": step,
            "epoch": position.epoch,
            "step_of_epoch": position.step,
            "learning_rate": float(rate),
            "replicas": model.strategy.num_replicas_in_sync,
            "action": self.action,
            "count": self.count,
            "finding": finding and dataclasses.asdict(finding),
        }
        if model.loss_scale is not None:
            report["loss_scale"] = float(model.loss_scale.value())
        if finding is not None and finding.kind in diagnosis.BY_EXAMPLE:
            report["labels"] = [int(labels[row]) for row in finding.rows]
        return report

    def _roll_back(self, model, message):
        """Loads the newest checkpoint with finite weights; returns its path."""
        position = dataclasses.replace(model.trainer.position)
        iterations = model.optimizer.iterations.numpy()
        if model.trainer.finish_saving is not None:
            model.trainer.finish_saving()
        paths = [path for _, path in reversed(catalog.find_all(self.directory))]
        # Use the chief's list: other workers may see an older state of the folder.
        for path in model.trainer.group.gather("roll back to", paths)[0]:
            try:
                state.restore(path, model)
            except ValueError as error:
                logging.warning("Not rolled back to %s: %s", path, error)
                continue
            # Keep the position and the step count, so that the data and the schedule
            # continue.
            model.trainer.position.go_to(position)
            model.optimizer.iterations.assign(iterations)
            weights = (v.numpy() for v in model.backbone.weights)
            finite = all(np.isfinite(weight).all() for weight in weights)
            if finite and diagnosis.first_nonfinite_class(model) is None:
                return path
            logging.warning("Not rolled back to %s: its weights are not finite.", path)
        raise FloatingPointError(
            f"{message} {self.directory} has no checkpoint with finite weights to roll "
            "back to. Set save_checkpoints_steps to save checkpoints more often."
        )
