"""Keras callbacks that verify and log a training."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
from absl import logging

from plsc_tf.evaluation.verification import verify_pairs
from plsc_tf.heads.margins import require
from plsc_tf.progress import ProgressLine, format_seconds
from plsc_tf.reporting.recorder import Guard, Recorder
from plsc_tf.training.schedules import rate_of_last_step

if TYPE_CHECKING:
    from plsc_tf.evaluation.verification import VerificationResult

__all__ = ["TrainingLog", "Validation", "Verification", "format_seconds"]


class Verification(keras.callbacks.Callback):
    """Verifies pairs while training (PLSC: with_test, val_targets).

    `<name>_accuracy` joins the logs of an epoch whose last weights are verified.

    Args:
        pairs: `{name: what plsc_tf.load_pairs returns}`.
        every_n_steps: steps between verifications; 0 verifies after each epoch.
        after_epochs: whether to verify after each epoch also with every_n_steps;
            `Checkpoint(save_best=True)` needs it.
        batch_size: images at a time (PLSC: test_batch_size).
        recorder: the `Recorder` that gets the figures.

    Attributes:
        results: `{name: VerificationResult}` of the last verification.
        verified_step: the global step it was made at.
    """

    def __init__(
        self,
        pairs: Mapping[str, Any],
        *,
        every_n_steps: int = 0,
        batch_size: int = 120,
        recorder: Recorder | None = None,
        after_epochs: bool = False,
    ) -> None:
        super().__init__()
        self.recorder = recorder or Recorder()
        self.pairs = pairs
        self.every_n_steps = every_n_steps
        self.after_epochs = after_epochs
        self.batch_size = batch_size
        self.results: dict[str, VerificationResult] = {}
        self.verified_step: int | None = None

    def wants(self, step: int) -> bool:
        """Whether this step is verified, see `several_steps`."""
        return bool(self.every_n_steps) and step % self.every_n_steps == 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Verifies when `every_n_steps` steps are done."""
        step = self.model.trainer.position.global_step
        if self.wants(step):
            self.verify(step)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Verifies after the epoch, unless steps decide."""
        step = self.model.trainer.position.global_step
        if self.after_epochs or not self.every_n_steps:
            self.verify(step)
        # An earlier verification was of other weights than the epoch ends with.
        if logs is None or self.verified_step != step:
            return
        for name, result in self.results.items():
            logs[f"{name}_accuracy"] = result.accuracy

    def verify(self, step: int) -> dict[str, VerificationResult]:
        """Verifies now, unless it was done at this step already."""
        if self.verified_step == step:
            return self.results
        for name, pairs in self.pairs.items():
            with self.model.trainer.averaged():
                result = verify_pairs(
                    self.model.embed,
                    pairs,
                    batch_size=self.batch_size,
                    image_size=self.model.image_size,
                )
            self.results[name] = result
            logging.info("[%s][step %d] XNorm: %.4f", name, step, result.xnorm)
            logging.info("[%s][step %d] %s", name, step, result)
            figures = {
                f"verification/{name}_{figure}": getattr(result, figure)
                for figure in ("accuracy", "threshold", "xnorm")
            }
            self.recorder.scalars(step, figures)
        self.verified_step = step
        return self.results


class EpochLength(keras.callbacks.Callback):
    """Warns once where an epoch has other steps than the run was planned for.

    Args:
        steps_per_epoch: as planned.
        global_batch_size: images per step.
    """

    def __init__(self, steps_per_epoch: int, global_batch_size: int) -> None:
        super().__init__()
        self.steps_per_epoch = steps_per_epoch
        self.global_batch_size = global_batch_size
        self._steps = 0
        self._warned = False

    def wants(self, step: int) -> bool:
        """Never the model of a certain step, see `several_steps`."""
        return False

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts the steps of the epoch, those of an earlier process too."""
        self._steps = self.model.trainer.position.step

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Compares, where the epoch is whole."""
        steps, self._steps = self._steps, 0
        whole = steps and self.model.trainer.position.epoch > epoch
        if self._warned or not whole or steps == self.steps_per_epoch:
            return
        self._warned = True
        logging.warning(
            "Epoch %d had %d steps, but %d were planned: the learning rate and the "
            "time left are for another length. Set num_sample_per_epoch to the number "
            "of examples, which is at most %d.",
            epoch,
            steps,
            self.steps_per_epoch,
            steps * self.global_batch_size,
        )


@dataclasses.dataclass
class _Clock:
    """Time of some steps."""

    seconds: float = 0.0
    steps: int = 0

    def add(self, seconds):
        self.seconds += seconds
        self.steps += 1

    def rate(self):
        return self.steps / max(self.seconds, 1e-9)


class TrainingLog(keras.callbacks.Callback):
    """Logs loss, learning rate, images/s and the time left.

    On a terminal the line is redrawn in place, elsewhere each one stays.

    Args:
        every_n_steps: steps between two lines (FastNN: log_loss_every_n_iters).
        total_steps: steps of the whole run, None when unknown.
        global_batch_size: images per step.
        recorder: the `Recorder` that gets the figures.
        interruptions: after how many steps others verify or save, which is not
            counted as time of training.
        lines: whether to log lines; the figures are recorded in any case.

    Attributes:
        images_per_second: mean over the steps of this process, without its first, in
            which the graph is traced, and without verification and saving. The first
            counts only when it is alone.
        timed_steps: [first, last] global step that the mean is of; None before a step.
    """

    def __init__(
        self,
        *,
        every_n_steps: int,
        total_steps: int | None,
        global_batch_size: int,
        recorder: Recorder | None = None,
        interruptions: Iterable[int] = (),
        lines: bool = True,
    ) -> None:
        super().__init__()
        self.every_n_steps = every_n_steps
        self.total_steps = total_steps
        self.global_batch_size = global_batch_size
        self.recorder = recorder or Recorder()
        self.interruptions = tuple(n for n in interruptions if n)
        self.images_per_second: float | None = None
        self.timed_steps = None
        self._line = ProgressLine(total_steps) if lines else None
        self._shown = Guard("the line of progress")
        self._since_line: list[dict[str, float]] = []
        # Seconds of each step since the first one, the last line, the epoch's begin.
        self._run, self._of_line, self._of_epoch = _Clock(), _Clock(), _Clock()
        self._steps = 0
        self._last = 0.0
        self._paused = True

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Tells the recorder the step the run starts at."""
        self.recorder.begin(self.model.trainer.position.global_step)
        self._paused = True

    def wants(self, step: int) -> bool:
        """Whether there is a line after this step, see `several_steps`."""
        return self._is_due(step) or any(step % n == 0 for n in self.interruptions)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Starts the clock again after verification and saving."""
        if self._paused:
            self._last, self._paused = time.monotonic(), False

    def pause(self) -> None:
        """Stops the clock until the next step, and ends an open line."""
        self._paused = True
        if self._line:
            self._shown(self._line.end)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts the step; prints when `every_n_steps` are done."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        step = self.model.trainer.position.global_step
        if self.model.trainer.step_result:  # none of a step that was skipped
            self._since_line.append(self.model.trainer.step_result)
        self._count(seconds, step)
        if self._since_line and self._is_due(step):
            values = self._values()
            self._since_line, self._of_line = [], _Clock()
            self.recorder.scalars(step, values)
            if line := self._line:
                self._shown(lambda: line.tell(step, self._text(step, values)))
        elif self._since_line and self._line:
            self._shown(lambda: self._redraw(step, now))
        if any(step % n == 0 for n in self.interruptions):
            self.pause()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Records the epoch's means and times (MindSpore: TimeMonitor)."""
        self.pause()
        values = {
            f"epoch/{name}": float(value)
            for name, value in (logs or {}).items()
            if value is not None
        }
        clock, self._of_epoch = self._of_epoch, _Clock()
        if clock.steps:
            each = clock.seconds / clock.steps
            values |= {"epoch/seconds": clock.seconds, "epoch/seconds_per_step": each}
            if self._line:
                text = "epoch %d took %.1f s, %.1f ms per step"
                logging.info(text, epoch, clock.seconds, 1e3 * each)
        if values:
            self.recorder.scalars(self.model.trainer.position.global_step, values)
        self.recorder.flush()

    def _redraw(self, step, now):
        if self._line.wants_more(now):
            self._line.redraw(step, self._text(step, self._values()))

    def _is_due(self, step):
        return step % self.every_n_steps == 0 or step == self.total_steps

    def _count(self, seconds, step):
        self._of_epoch.add(seconds)
        self._steps += 1
        self.timed_steps = [step - max(self._steps - 2, 0), step]
        if self._steps == 1:  # it counts only when it is alone
            self.images_per_second = self.global_batch_size / max(seconds, 1e-9)
            return
        self._run.add(seconds)
        self._of_line.add(seconds)
        self.images_per_second = self._run.rate() * self.global_batch_size

    def _values(self):
        """The figures since the last line."""
        count = len(self._since_line)
        values = {
            name: sum(result[name] for result in self._since_line) / count
            for name in self._since_line[0]
        }
        values["learning_rate"] = rate_of_last_step(self.model.optimizer)
        if self.model.loss_scale is not None:
            values["loss_scale"] = float(self.model.loss_scale.value())
        if self._of_line.steps:
            values["images_per_second"] = self._of_line.rate() * self.global_batch_size
        return values

    def _text(self, step, values):
        values = dict(values)
        rate = values.pop("learning_rate")
        speed = values.pop("images_per_second", self.images_per_second)
        scale = values.pop("loss_scale", None)
        shown = [f"{name} {value:.4f}" for name, value in values.items()]
        if scale is not None:
            shown.append(f"loss scale {scale:g}")
        of_total, eta = "", ""
        if self.total_steps:
            of_total = f"/{self.total_steps}"
            left = (self.total_steps - step) * self.global_batch_size
            eta = f"  ETA {format_seconds(left / self.images_per_second)}"
        return (
            f"epoch {self.model.trainer.position.epoch}  step {step}{of_total}  "
            f"{'  '.join(shown)}  lr {rate:.3g}  {speed:.1f} images/s{eta}"
        )


class Validation(keras.callbacks.Callback):
    """Adds `val_loss` and `val_` metrics to an epoch's logs, before other callbacks.

    Args:
        data: what `Classifier.evaluate` takes as `x`.
        freq: epochs between two validations, or numbers of epochs, from 1.
        steps: batches of one; None: all.
        callbacks: those of the training, whose `on_test_…` are called.

    Raises:
        ValueError: freq is neither.
    """

    def __init__(
        self,
        data: Any,
        freq: int | Sequence[int] = 1,
        steps: int | None = None,
        callbacks: Any = (),
    ) -> None:
        super().__init__()
        is_number = isinstance(freq, int) and freq >= 1
        rule = "validation_freq must be a number of epochs from 1 on, or a list of them"
        fits = is_number or isinstance(freq, list | tuple | set)
        require(fits, rule, validation_freq=freq)
        self._data, self._freq, self._steps = data, freq, steps
        # Without a model: they have theirs.
        self._callbacks = keras.callbacks.CallbackList(list(callbacks))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Evaluates after every `freq` epochs."""
        number = epoch + 1
        freq = self._freq
        due = number % freq == 0 if isinstance(freq, int) else number in freq
        if logs is None or not due:
            return
        results = self.model.evaluate(
            self._data, steps=self._steps, callbacks=self._callbacks, return_dict=True
        )
        logs.update({f"val_{name}": value for name, value in results.items()})
