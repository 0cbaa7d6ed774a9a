"""The watchdog of a training: a step that stalls ends with an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from plsc_tf.training.stalls import StallDetector

if TYPE_CHECKING:
    from plsc_tf.parallel.group import Group
    from plsc_tf.training.classifier import Classifier


class Watchdog(keras.callbacks.Callback):
    """Ends the process when a step, or anything else, takes too long.

    It writes the stacks of all threads, and names the workers that the others wait
    for. All workers end with status 75. Put it before other callbacks: what they do
    between two steps is then no part of a step. It watches from the first step on.

    Args:
        timeout_s: the longest time between two signs of progress, in seconds. The first
            step traces and compiles the graph, and must find time for that, too. What
            takes longer, such as verification, calls `model.trainer.heartbeat()`.
        group: the `plsc_tf.parallel.group.Group` of workers; None, or a group of one,
            when this process is alone.
    """

    def __init__(self, timeout_s: float, group: Group | None = None) -> None:
        super().__init__()
        self._detector = StallDetector(timeout_s, group)

    def set_model(self, model: Classifier) -> None:
        """Lets long work report progress."""
        super().set_model(model)
        model.trainer.heartbeat = self._detector.heartbeat

    def stop(self) -> None:
        """Ends watching, also after an exception."""
        self._detector.stop()

    def wants(self, step: int) -> bool:
        """A call of several steps is one to wait for, see `several_steps`."""
        return False

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """A step begins."""
        self._detector.begin(f"step {self._next_step()}")
        self._detector.start()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """A step is done; data, verification and checkpoints come before the next."""
        self._detector.begin(f"what comes before step {self._next_step()}")

    def on_train_end(self, logs: dict | None = None) -> None:
        """Ends watching."""
        self.stop()

    def _next_step(self):
        return self.model.trainer.position.global_step + 1
