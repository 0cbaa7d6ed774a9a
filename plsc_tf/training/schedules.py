"""Learning rates over the steps of a run; docs/schedules.md has the formulas."""

from __future__ import annotations

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.heads.margins import require

# FastNN's t2t warm-up starts at this share of the rate.
T2T_START = 0.01
# Share of the steps before the first interval of a scheme, and its number of decays.
LUONG = {"luong234": (2 / 3, 4), "luong5": (1 / 2, 5), "luong10": (1 / 2, 10)}


@keras.saving.register_keras_serializable("plsc_tf")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Grows to a schedule's start, then follows the schedule.

    The schedule counts steps from the start of training, as PLSC's and
    arcface_torch's do.

    Args:
        schedule: Keras `LearningRateSchedule`, or a float.
        warmup_steps: steps of growth.
        scheme: how it grows in n steps to the rate r. "linear": r (step + 1) / n;
            "linear_from_zero": r step / n (MindSpore, arcface_torch);
            "linear_from_lr": from `first_rate` to r (PLSC's code); "t2t":
            r 0.01^((n - step) / n) (FastNN).
        first_rate: rate of step 0 for "linear_from_lr".
        start: step that the schedule begins at; it is at its start before.
        bound: the smallest rate of the schedule (FastNN: end_learning_rate).

    Raises:
        ValueError: an unknown scheme.
    """

    def __init__(
        self,
        schedule: Any,
        warmup_steps: int,
        scheme: str = "linear",
        first_rate: float = 0.0,
        start: int = 0,
        bound: float = 0.0,
    ) -> None:
        schemes = ("linear", "linear_from_zero", "linear_from_lr", "t2t")
        rule = f"scheme must be one of {', '.join(schemes)}"
        require(scheme in schemes, rule, scheme=repr(scheme))
        self.schedule = schedule
        self.warmup_steps = warmup_steps
        self.scheme = scheme
        self.first_rate = first_rate
        self.start = start
        self.bound = bound

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The rate of a step, float32 scalar."""
        step = keras.ops.cast(step, "float32")
        after = self._scheduled(step)
        if not self.warmup_steps:
            return keras.ops.convert_to_tensor(after, "float32")
        growing = self._growing(step, self._scheduled(0.0))
        return keras.ops.where(step < self.warmup_steps, growing, after)

    def _scheduled(self, step):
        if not callable(self.schedule):
            return self.schedule
        rate = self.schedule(keras.ops.maximum(step - self.start, 0.0))
        return keras.ops.maximum(rate, self.bound) if self.bound else rate

    def _growing(self, step, rate):
        done = step / self.warmup_steps
        if self.scheme == "linear":
            return rate * (step + 1.0) / self.warmup_steps
        if self.scheme == "linear_from_zero":
            return rate * done
        if self.scheme == "linear_from_lr":
            return self.first_rate + (rate - self.first_rate) * done
        return rate * keras.ops.power(T2T_START, 1.0 - done)

    def get_config(self) -> dict:
        """Returns the constructor's arguments."""
        names = ("schedule", "warmup_steps", "scheme", "first_rate", "start", "bound")
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True)
class Run:
    """Facts of a run that a schedule depends on.

    Attributes:
        global_batch_size: images per step.
        steps_per_epoch: steps of an epoch, for what is counted in epochs.
        total_steps: steps of num_epochs, where the decays end.
        stop_at_step: step that the run ends at, 0 for total_steps.
    """

    global_batch_size: int
    steps_per_epoch: int
    total_steps: int
    stop_at_step: int = 0


def scaled_rate(rate: float, global_batch_size: int, base_batch_size: int) -> float:
    """PLSC's rule lr · total batch / 1024; a base of 0 leaves the rate as it is."""
    if not base_batch_size:
        return rate
    return rate * global_batch_size / base_batch_size


def build(options: Any, run: Any) -> WarmUp:
    """The schedule that the learning-rate flags ask for.

    Args:
        options: the `LearningRate` flags.
        run: the `Run`.

    Raises:
        ValueError: the warm-up is longer than the run, or the decay has fewer steps
            than it needs, or none at all.
    """
    rate = scaled_rate(
        options.learning_rate, run.global_batch_size, options.lr_base_batch_size
    )
    total = run.total_steps
    if options.lr_total_epochs is not None:
        total = round(options.lr_total_epochs * run.steps_per_epoch)
        rule = "lr_total_epochs must be at least one step, or left out for num_epochs"
        require(total >= 1, rule, lr_total_epochs=options.lr_total_epochs)
    warmup = round(options.warmup_epochs * run.steps_per_epoch)
    if options.warmup_steps:
        warmup = _own_steps(options, run, options.warmup_steps)
    if warmup and warmup >= total:
        name = "warmup_steps" if options.warmup_steps else "warmup_epochs"
        raise ValueError(
            f"{name}={getattr(options, name)} is {warmup} steps, but the run has "
            f"{total}. Lower {name} or train longer."
        )
    if options.decay_scheme:
        if options.lr_total_epochs is None:
            total = run.stop_at_step or total
        decay, limits = _luong(options, rate, total)
    else:
        decay, limits = _decay(options, run, rate, total, warmup)
    scheme = options.warmup_scheme
    return WarmUp(decay, warmup, scheme, options.learning_rate, **limits)


def depends_on_length(options: Any) -> bool:
    """Whether a rate depends on how long an epoch or the training is.

    Args:
        options: the `LearningRate` settings.
    """
    if options.decay_scheme or (options.warmup_epochs and not options.warmup_steps):
        return True
    by_steps = options.learning_rate_decay_type == "piecewise" and not options.lr_epochs
    return not (by_steps or options.learning_rate_decay_type == "fixed")


def rate_of_last_step(optimizer: keras.optimizers.Optimizer) -> float:
    """The learning rate that the last update was made with, a float.

    Keras's `optimizer.learning_rate` is a schedule's rate of the update to come.

    Args:
        optimizer: Keras optimizer.
    """
    schedule = private_apis.learning_rate_or_schedule(optimizer)
    if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
        done = keras.ops.convert_to_numpy(optimizer.iterations)
        rate = schedule(keras.ops.convert_to_tensor(max(done - 1, 0), "int64"))
    else:
        rate = optimizer.learning_rate
    return float(keras.ops.convert_to_numpy(rate))


def _own_steps(options, run, steps):
    """Converts steps at lr_steps_batch_size to steps of this run."""
    meant = options.lr_steps_batch_size
    return round(steps * meant / run.global_batch_size) if meant else steps


def _decay(options, run, rate, total, warmup):
    """(the schedule, arguments of `WarmUp`)."""
    schedules = keras.optimizers.schedules
    kind = options.learning_rate_decay_type
    end = min(options.end_learning_rate, rate)
    if kind == "piecewise":
        return _piecewise(options, run, rate), {}
    if kind == "polynomial":
        power = options.polynomial_power
        return schedules.PolynomialDecay(rate, total, end, power=power), {}
    if kind == "linear":
        decay = schedules.PolynomialDecay(rate, total - warmup, end)
        return decay, {"start": warmup}
    if kind == "cosine":
        return schedules.CosineDecay(rate, total, alpha=end / (rate or 1.0)), {}
    if kind == "exponential":
        factor = options.learning_rate_decay_factor
        decay = schedules.ExponentialDecay(
            rate, run.steps_per_epoch, factor, staircase=True
        )
        return decay, {"bound": end}
    return rate, {}


def _piecewise(options, run, rate):
    steps = [_own_steps(options, run, step) for step in options.lr_steps]
    if options.lr_epochs:
        steps = [round(epoch * run.steps_per_epoch) for epoch in options.lr_epochs]
    if steps != sorted(set(steps)) or 0 in steps:
        name = "lr_epochs" if options.lr_epochs else "lr_steps"
        raise ValueError(
            f"{name} are steps {', '.join(map(str, steps))} of this run, which must "
            f"grow from 1 on. Received: {name}={getattr(options, name)}, with a "
            f"global batch of {run.global_batch_size}."
        )
    factor = options.learning_rate_decay_factor
    return _steps_down(rate, steps, [rate * factor**i for i in range(len(steps) + 1)])


def _luong(options, rate, total):
    """FastNN's decay schemes: (the schedule, arguments of `WarmUp`).

    The k-th decay acts k intervals behind the start, so that the last one falls on
    the last step, as in FastNN's code and TensorFlow's NMT tutorial that it is from.
    """
    share, times = LUONG[options.decay_scheme]
    start = int(total * share)
    interval = (total - start) // times
    rule = f"A scheme that decays {times} times in the last steps needs a longer run"
    require(interval > 0, rule, decay_scheme=options.decay_scheme, steps=total)
    end = min(options.end_learning_rate, rate)
    if options.learning_rate_decay_type == "polynomial":
        decay = keras.optimizers.schedules.PolynomialDecay(
            rate, interval, end, power=options.polynomial_power
        )
        return decay, {"start": start}
    factor = options.luong_decay_factor
    values = [max(rate * factor**k, end) for k in range(times + 1)]
    steps = [start + k * interval for k in range(1, times + 1)]
    return _steps_down(rate, steps, values), {}


def _steps_down(rate, steps, values):
    """`values` one after the other, changing at `steps`."""
    if not steps:
        return rate
    # Keras changes the rate one step after a boundary.
    boundaries = [step - 1 for step in steps]
    return keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, values)
