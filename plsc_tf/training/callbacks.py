"""Contains Keras callbacks for verification, validation and logging."""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras
from absl import logging

from plsc_tf.evaluation.verification import VerificationResult, verify_pairs
from plsc_tf.progress import ProgressLine, format_seconds
from plsc_tf.reporting.recorder import Guard, Recorder, Sink
from plsc_tf.requirements import require
from plsc_tf.training.schedules import rate_of_last_step


@dataclasses.dataclass(eq=False, repr=False)
class Verification(keras.callbacks.Callback):
    """Verifies pairs during training (PLSC: with_test, val_targets).

    An epoch's logs get `<name>_accuracy` if the weights at the end of the epoch were
    verified.

    Args:
        pairs: `{name: pairs}`, with the pairs returned by `plsc_tf.load_pairs`.
        every_n_steps: steps between verifications; 0 verifies after each epoch.
        after_epochs: also verify after each epoch if `every_n_steps` is set;
            `Checkpoint(save_best=True)` needs this.
        batch_size: images per batch (PLSC: test_batch_size).
        recorder: the `Recorder` that records the results.

    Attributes:
        results: `{name: VerificationResult}` of the last verification.
        verified_step: the global step of the last verification.
    """

    pairs: Mapping[str, Any]
    _: dataclasses.KW_ONLY
    every_n_steps: int = 0
    batch_size: int = 120
    recorder: Recorder = dataclasses.field(default_factory=Recorder)
    after_epochs: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.results: dict[str, VerificationResult] = {}
        self.verified_step: int | None = None

    def wants(self, step: int) -> bool:
        """Returns whether to verify after this step, see `several_steps`."""
        return bool(self.every_n_steps) and step % self.every_n_steps == 0

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Verifies after every `every_n_steps` steps."""
        if self.wants(step := self.model.trainer.position.global_step):
            self.verify(step)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Verifies after the epoch if `every_n_steps` is 0 or `after_epochs` is set."""
        step = self.model.trainer.position.global_step
        if self.after_epochs or not self.every_n_steps:
            self.verify(step)
        # An earlier verification does not describe the weights at the epoch's end.
        if logs is None or self.verified_step != step:
            return
        for name, result in self.results.items():
            logs[f"{name}_accuracy"] = result.accuracy

    def verify(self, step: int) -> dict[str, VerificationResult]:
        """Verifies the current weights unless this step was already verified."""
        if self.verified_step == step:
            return self.results
        model = self.model
        sizes = {"batch_size": self.batch_size, "image_size": model.image_size}
        for name, pairs in self.pairs.items():
            with model.trainer.averaged():
                result = verify_pairs(model.embed, pairs, **sizes)
            self.results[name] = result
            logging.info("[%s][step %d] XNorm: %.4f", name, step, result.xnorm)
            logging.info("[%s][step %d] %s", name, step, result)
            kinds = ("accuracy", "threshold", "xnorm")
            figures = {f"verification/{name}_{k}": getattr(result, k) for k in kinds}
            self.recorder.scalars(step, figures)
        self.verified_step = step
        return self.results


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class TrainingLog(keras.callbacks.Callback):
    """Logs the loss, the learning rate, images/s and the remaining time.

    On a terminal, the progress line is redrawn in place; elsewhere, every line is kept.

    Args:
        every_n_steps: steps between two lines (FastNN: log_loss_every_n_iters).
        total_steps: steps of the whole run, or None if unknown.
        steps_per_epoch: planned steps of an epoch; warns once if an epoch has another
            number of steps. None plans nothing.
        global_batch_size: images per step.
        recorder: the `Recorder` that records the values.
        interruptions: other callbacks; the time that they take after the steps that
            they want (see `several_steps`) is not counted as training time.
        lines: whether to log lines; the values are recorded in any case.

    Attributes:
        images_per_second: mean over this process's steps, excluding verification,
            saving, and the first step, which traces the graph. While there is only one
            step, its speed.
    """

    every_n_steps: int
    total_steps: int | None
    global_batch_size: int
    steps_per_epoch: int | None = None
    recorder: Recorder = dataclasses.field(default_factory=Recorder)
    interruptions: Sequence[keras.callbacks.Callback] = ()
    lines: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        others = [one for one in self.interruptions if hasattr(one, "wants")]
        self._interrupts = [one.wants for one in others]
        self.images_per_second: float | None = None
        self._line = ProgressLine(self.total_steps) if self.lines else None
        self._shown = Guard("the line of progress")
        self._since_line: list[dict[str, float]] = []
        # Durations in seconds: of all steps after the first one, and of each step since
        # the last line and since the epoch began.
        self._seconds = 0.0
        self._of_line: list[float] = []
        self._of_epoch: list[float] = []
        self._steps = self._epoch_steps = 0
        self._last, self._paused = 0.0, True

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Passes the step at which the run starts to the recorder."""
        self.recorder.begin(self.model.trainer.position.global_step)
        self._paused = True

    def wants(self, step: int) -> bool:
        """Returns whether a line is due after this step; see `several_steps`."""
        return step % self.every_n_steps == 0 or step == self.total_steps

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Restarts the clock after verification or saving."""
        if self._paused:
            self._last, self._paused = time.monotonic(), False

    def pause(self) -> None:
        """Stops the clock until the next step, and ends the progress line."""
        self._paused = True
        if self._line:
            self._shown(self._line.end)

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Counts the step; logs a line after every `every_n_steps` steps."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        step = self.model.trainer.position.global_step
        self._epoch_steps = self.model.trainer.position.step
        if self.model.trainer.step_result:  # empty if the step was skipped
            self._since_line.append(self.model.trainer.step_result)
        self._of_epoch.append(seconds)
        self._steps += 1
        if self._steps > 1:  # the first step counts only while it is the only one
            self._seconds += seconds
            self._of_line.append(seconds)
        timed = max(self._steps - 1, 1), self._seconds or seconds
        self.images_per_second = self._speed(*timed)
        due = self.wants(step)
        if self._since_line and (line := self._line):
            self._shown(lambda: line.show(step, lambda: self._text(step), due))
        if self._since_line and due:
            self.recorder.scalars(step, self._values())
            self._since_line, self._of_line = [], []
        if any(wants(step) for wants in self._interrupts):
            self.pause()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Records the epoch's means and durations (MindSpore: TimeMonitor)."""
        self.pause()
        done, planned = self._epoch_steps, self.steps_per_epoch
        whole = self.model.trainer.position.epoch > epoch
        if whole and done and planned and done != planned:
            self.steps_per_epoch = None  # warns once
            logging.warning(
                f"Epoch {epoch} had {done} steps instead of the planned {planned}, so "
                "the learning rate and the remaining time are wrong. Set "
                "num_sample_per_epoch to the number of examples, at most "
                f"{done * self.global_batch_size}."
            )
        figures = {k: v for k, v in (logs or {}).items() if v is not None}
        values = {f"epoch/{name}": float(value) for name, value in figures.items()}
        seconds, steps, self._of_epoch = sum(self._of_epoch), len(self._of_epoch), []
        if steps:
            each = seconds / steps
            values |= {"epoch/seconds": seconds, "epoch/seconds_per_step": each}
            if self._line:
                text = "epoch %d took %.1f s, %.1f ms per step"
                logging.info(text, epoch, seconds, 1e3 * each)
        if values:
            self.recorder.scalars(self.model.trainer.position.global_step, values)
        self.recorder.flush()

    def _speed(self, steps, seconds):
        return self.global_batch_size * steps / max(seconds, 1e-9)

    def _values(self):
        """Returns means since the last line, and the current rate, scale and speed."""
        steps = self._since_line
        values = {k: sum(one[k] for one in steps) / len(steps) for k in steps[0]}
        values["learning_rate"] = rate_of_last_step(self.model.optimizer)
        if self.model.loss_scale is not None:
            values["loss_scale"] = float(self.model.loss_scale.value())
        if times := self._of_line:
            values["images_per_second"] = self._speed(len(times), sum(times))
        return values

    def _text(self, step):
        values = self._values()
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


class Tracking(TrainingLog):
    """Sends the figures of one `fit` to experiment trackers; logs no lines.

    A `fit` that starts at step 0 is a new run. A later `fit` of the same model, or one
    that resumes a checkpoint, continues the run of the tracker's folder. A tracker that
    fails is logged once, and the training continues. To include verification, pass the
    attribute `recorder` to `Verification`.

    Args:
        *sinks: `plsc_tf.Tracker`s, or any other `Sink`s, such as `TensorBoard`.
        global_batch_size: images per step.
        every_n_steps: steps between two records.
    """

    def __init__(self, *sinks: Sink, global_batch_size: int, every_n_steps: int = 10):
        given: dict = {"recorder": Recorder(sinks), "every_n_steps": every_n_steps}
        given["global_batch_size"] = global_batch_size
        super().__init__(**given, total_steps=None, lines=False)

    def on_train_end(self, logs: dict | None = None) -> None:
        """Ends the runs as finished."""
        self.recorder.finish(())
        self.recorder.close()


@dataclasses.dataclass(eq=False, repr=False)
class Validation(keras.callbacks.Callback):
    """Adds `val_loss` and `val_` metrics to an epoch's logs, before other callbacks.

    Args:
        data: data that `Classifier.evaluate` accepts as `x`.
        freq: number of epochs between two validations, or the epochs to validate
            after, counted from 1.
        steps: maximum number of batches per validation, or None for all.
        callbacks: the training's callbacks; their `on_test_…` methods are called.

    Raises:
        ValueError: `freq` is neither a positive number nor a list.
    """

    data: Any
    freq: int | Sequence[int] = 1
    steps: int | None = None
    callbacks: Any = ()

    def __post_init__(self) -> None:
        super().__init__()
        freq = self.freq
        is_number = isinstance(freq, int) and freq >= 1
        rule = "validation_freq must be a positive number or a list of epochs"
        fits = is_number or isinstance(freq, list | tuple | set)
        require(fits, rule, validation_freq=freq)
        # No model is passed: the callbacks already have it.
        self.callbacks = keras.callbacks.CallbackList(list(self.callbacks))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Evaluates the model if validation is due after this epoch."""
        number, freq = epoch + 1, self.freq
        due = number % freq == 0 if isinstance(freq, int) else number in freq
        if logs is None or not due:
            return
        results = self.model.evaluate(
            self.data, steps=self.steps, callbacks=self.callbacks, return_dict=True
        )
        logs.update({f"val_{name}": value for name, value in results.items()})
