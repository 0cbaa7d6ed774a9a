"""Keras callbacks that verify a training and tell how it goes."""

import sys
import time

import keras
from absl import logging

from plsc_tf.evaluation.verification import verify_pairs
from plsc_tf.training.scalars import Scalars


class Verification(keras.callbacks.Callback):
    """Verifies pairs while training (PLSC: with_test, val_targets).

    After each epoch, or every so many steps, `<name>_accuracy` joins the logs.

    Args:
        pairs: `{name: what plsc_tf.load_pairs returns}`.
        every_n_steps: steps between verifications; 0 verifies after each epoch.
        batch_size: images at a time (PLSC: test_batch_size).

    Attributes:
        results: `{name: VerificationResult}` of the last verification.
        verified_step: the global step it was made at.
    """

    def __init__(self, pairs, *, every_n_steps=0, batch_size=120):
        super().__init__()
        self.pairs = pairs
        self.every_n_steps = every_n_steps
        self.batch_size = batch_size
        self.results = {}
        self.verified_step = None

    def on_train_batch_end(self, batch, logs=None):
        """Verifies when `every_n_steps` steps are done."""
        step = self.model.position.global_step
        if self.every_n_steps and step % self.every_n_steps == 0:
            self.verify(step)

    def on_epoch_end(self, epoch, logs=None):
        """Verifies after the epoch, unless steps decide."""
        if not self.every_n_steps:
            self.verify(self.model.position.global_step)
        for name, result in self.results.items():
            if logs is not None:
                logs[f"{name}_accuracy"] = result.accuracy

    def verify(self, step):
        """Verifies now, unless it was done at this step already."""
        if self.verified_step == step:
            return self.results
        for name, pairs in self.pairs.items():
            result = verify_pairs(
                self.model.embed,
                pairs,
                batch_size=self.batch_size,
                image_size=self.model.image_size,
            )
            self.results[name] = result
            logging.info("[%s][step %d] XNorm: %.4f", name, step, result.xnorm)
            logging.info("[%s][step %d] %s", name, step, result)
        self.verified_step = step
        return self.results


class TrainingLog(keras.callbacks.Callback):
    """Tells loss, learning rate, images/s and the time left; writes TensorBoard.

    On a terminal the line is redrawn in place, elsewhere each one stays.

    Args:
        every_n_steps: steps between two lines (FastNN: log_loss_every_n_iters).
        total_steps: steps of the whole run, None when unknown.
        global_batch_size: images per step.
        tensorboard_dir: folder for scalars, or None.
        interruptions: after how many steps others verify or save, which is not
            counted as time of training.

    Attributes:
        images_per_second: mean over the run, without verification and saving.
    """

    def __init__(
        self,
        *,
        every_n_steps,
        total_steps,
        global_batch_size,
        tensorboard_dir=None,
        interruptions=(),
    ):
        super().__init__()
        self.every_n_steps = every_n_steps
        self.total_steps = total_steps
        self.global_batch_size = global_batch_size
        self.interruptions = tuple(n for n in interruptions if n)
        self.images_per_second = None
        self._scalars = None
        self._tensorboard_dir = tensorboard_dir
        self._seconds = 0.0
        self._steps = 0
        self._since_line = []
        self._line_seconds = 0.0
        self._last = None
        self._paused = True
        self._line_open = False

    def on_train_begin(self, logs=None):
        """Opens the TensorBoard file."""
        if self._tensorboard_dir:
            self._scalars = Scalars(self._tensorboard_dir)
        self._paused = True

    def on_train_batch_begin(self, batch, logs=None):
        """Starts the clock again after verification and saving."""
        if self._paused:
            self._last, self._paused = time.monotonic(), False

    def pause(self):
        """Stops the clock until the next step, and ends an open line."""
        self._paused = True
        if self._line_open:
            sys.stderr.write("\n")
            self._line_open = False

    def on_train_batch_end(self, batch, logs=None):
        """Counts the step; prints when `every_n_steps` are done."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        step = self.model.position.global_step
        if self.model.step_result:  # none of a step that was skipped
            self._since_line.append(self.model.step_result)
        self._line_seconds += seconds
        if self._steps:
            self._seconds += seconds
            done = self._steps * self.global_batch_size
            self.images_per_second = done / max(self._seconds, 1e-9)
        else:  # the first step traces the graph: it counts only when it is alone
            self.images_per_second = self.global_batch_size / max(seconds, 1e-9)
        self._steps += 1
        due = step % self.every_n_steps == 0 or step == self.total_steps
        if due and self._since_line:
            self._tell(step)
        if any(step % n == 0 for n in self.interruptions):
            self.pause()

    def on_epoch_end(self, epoch, logs=None):
        """Writes the epoch's means to TensorBoard."""
        self.pause()
        if self._scalars:
            values = {f"epoch/{name}": value for name, value in _plain(logs).items()}
            self._scalars.write(self.model.position.global_step, values)

    def on_train_end(self, logs=None):
        """Closes the TensorBoard file."""
        if self._scalars:
            self._scalars.close()

    def _tell(self, step):
        count = len(self._since_line)
        means = {
            name: sum(result[name] for result in self._since_line) / count
            for name in self._since_line[0]
        }
        speed = count * self.global_batch_size / max(self._line_seconds, 1e-9)
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        self._since_line, self._line_seconds = [], 0.0
        values = "  ".join(f"{name} {value:.4f}" for name, value in means.items())
        scale = self.model.loss_scale
        scalars = {"learning_rate": rate}
        if scale is not None:
            scalars["loss_scale"] = float(scale.value())
            values += f"  loss scale {scalars['loss_scale']:g}"
        of_total, eta = "", ""
        if self.total_steps:
            of_total = f"/{self.total_steps}"
            left = (self.total_steps - step) * self.global_batch_size
            pace = self.images_per_second or speed
            eta = f"  ETA {format_seconds(left / pace)}"
        self._show(
            f"epoch {self.model.position.epoch}  step {step}{of_total}  {values}  "
            f"lr {rate:.3g}  {speed:.1f} images/s{eta}"
        )
        if self._scalars:
            values = {**means, **scalars, "images_per_second": speed}
            self._scalars.write(step, values)

    def _show(self, line):
        if not sys.stderr.isatty():
            logging.info("%s", line)
            return
        step, total = self.model.position.global_step, self.total_steps
        done = round(20 * step / total) if total else 0
        bar = f"[{'=' * done}{' ' * (20 - done)}] " if total else ""
        sys.stderr.write(f"\r\x1b[K{bar}{line}")
        sys.stderr.flush()
        self._line_open = True


def format_seconds(seconds):
    """`1:02:03` or `2:03`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"


def _plain(logs):
    return {name: float(value) for name, value in (logs or {}).items()}
