"""Contains learning-rate schedules; docs/schedules.md has the formulas."""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from plsc_tf import private_apis
from plsc_tf.requirements import require, require_one_of

# FastNN's t2t warm-up starts at this share of the rate.
T2T_START = 0.01
# For each scheme: the share of steps before the first interval, and number of decays.
LUONG = {"luong234": (2 / 3, 4), "luong5": (1 / 2, 5), "luong10": (1 / 2, 10)}


@keras.saving.register_keras_serializable("plsc_tf")
@dataclasses.dataclass(eq=False)
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Warms up to a schedule's initial rate, and follows the schedule afterwards.

    The schedule counts steps from the start of training, as in PLSC and arcface_torch.

    Args:
        schedule: Keras `LearningRateSchedule`, or a float.
        warmup_steps: number of warm-up steps.
        scheme: formula of the warm-up in n steps to the rate r. "linear":
            r (step + 1) / n; "linear_from_zero": r step / n (MindSpore, arcface_torch);
            "linear_from_lr": linear from `first_rate` to r (PLSC's code); "t2t":
            r 0.01^((n - step) / n) (FastNN).
        first_rate: rate of step 0 for "linear_from_lr".
        start: step at which the schedule begins; before it, the schedule has its
            initial rate.
        bound: lower bound of the schedule's rate (FastNN: end_learning_rate).

    Raises:
        ValueError: the scheme is unknown.
    """

    schedule: Any
    warmup_steps: int
    scheme: str = "linear"
    first_rate: float = 0.0
    start: int = 0
    bound: float = 0.0

    def __post_init__(self) -> None:
        schemes = ("linear", "linear_from_zero", "linear_from_lr", "t2t")
        require_one_of(schemes, scheme=self.scheme)

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """Computes the rate of a step, a float32 scalar."""
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
        names = [field.name for field in dataclasses.fields(self)]
        return {name: getattr(self, name) for name in names}


def scaled_rate(rate: float, global_batch_size: int, base_batch_size: int) -> float:
    """Scales a rate by the batch size (PLSC: lr · total batch / 1024).

    Args:
        rate: learning rate for the base batch size.
        global_batch_size: images per step.
        base_batch_size: batch size that `rate` is for; 0 returns `rate` unchanged.
    """
    return rate * global_batch_size / base_batch_size if base_batch_size else rate


def build(
    options: Any,
    rate: float,
    steps_per_epoch: int,
    total_steps: int,
    stop_at_step: int = 0,
) -> WarmUp:
    """Builds the schedule from the learning-rate options.

    Args:
        options: the `LearningRate` options.
        rate: the initial rate, from `scaled_rate`.
        steps_per_epoch: steps of an epoch, to convert options given in epochs.
        total_steps: number of steps in num_epochs, at which the decays end.
        stop_at_step: step at which the run ends, 0 for total_steps.

    Raises:
        ValueError: the warm-up is as long as the run or longer, or there are not enough
            steps for the decay.
    """
    total = total_steps
    if options.lr_total_epochs is not None:
        total = round(options.lr_total_epochs * steps_per_epoch)
        rule = "lr_total_epochs must be at least one step; the default is num_epochs"
        require(total >= 1, rule, lr_total_epochs=options.lr_total_epochs)
    warmup = options.warmup_steps or round(options.warmup_epochs * steps_per_epoch)
    name = "warmup_steps" if options.warmup_steps else "warmup_epochs"
    rule = f"{name}={getattr(options, name)} is {warmup} steps, but the run has {total}"
    require(not warmup or warmup < total, rule, f"Lower {name} or train longer")
    if options.decay_scheme:
        if options.lr_total_epochs is None:
            total = stop_at_step or total
        decay, limits = _luong(options, rate, total)
    else:
        decay, limits = _decay(options, rate, steps_per_epoch, total, warmup)
    return WarmUp(decay, warmup, options.warmup_scheme, options.learning_rate, **limits)


def depends_on_length(options: Any) -> bool:
    """Returns whether the rates depend on the length of an epoch or of the training.

    Args:
        options: the `LearningRate` options.
    """
    if options.decay_scheme or (options.warmup_epochs and not options.warmup_steps):
        return True
    by_steps = options.learning_rate_decay_type == "piecewise" and not options.lr_epochs
    return not (by_steps or options.learning_rate_decay_type == "fixed")


def rate_of_last_step(optimizer: keras.optimizers.Optimizer) -> float:
    """Returns the learning rate of the last update, a float.

    With a schedule, Keras's `optimizer.learning_rate` is the rate of the next update.

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


def _decay(options, rate, steps_per_epoch, total, warmup):
    """Returns (decay schedule, further arguments of `WarmUp`)."""
    schedules = keras.optimizers.schedules
    kind = options.learning_rate_decay_type
    end = min(options.end_learning_rate, rate)
    if kind == "piecewise":
        return _piecewise(options, rate, steps_per_epoch), {}
    if kind == "polynomial":
        power = options.polynomial_power
        return schedules.PolynomialDecay(rate, total, end, power=power), {}
    if kind == "linear":
        return schedules.PolynomialDecay(rate, total - warmup, end), {"start": warmup}
    if kind == "cosine":
        return schedules.CosineDecay(rate, total, alpha=end / (rate or 1.0)), {}
    if kind == "exponential":
        each = steps_per_epoch, options.learning_rate_decay_factor
        return schedules.ExponentialDecay(rate, *each, staircase=True), {"bound": end}
    return rate, {}


def _piecewise(options, rate, steps_per_epoch):
    steps = list(options.lr_steps)
    if options.lr_epochs:
        steps = [round(epoch * steps_per_epoch) for epoch in options.lr_epochs]
    fits = steps == sorted(set(steps)) and 0 not in steps
    name = "lr_epochs" if options.lr_epochs else "lr_steps"
    given = f"{name}={getattr(options, name)}"
    rule = f"{given} must be increasing, with the first step at least 1"
    require(fits, rule, steps=steps)
    factor = options.learning_rate_decay_factor
    return _steps_down(rate, steps, [rate * factor**i for i in range(len(steps) + 1)])


def _luong(options, rate, total):
    """Returns FastNN's decay schemes: (schedule, further arguments of `WarmUp`).

    The k-th decay takes effect k intervals after the start, so the last one is at the
    last step. FastNN's code does the same, as does its source, TensorFlow's NMT
    tutorial.
    """
    share, times = LUONG[options.decay_scheme]
    start = int(total * share)
    interval = (total - start) // times
    rule = f"The run is too short to decay the learning rate {times} times"
    require(interval > 0, rule, decay_scheme=options.decay_scheme, steps=total)
    end = min(options.end_learning_rate, rate)
    if options.learning_rate_decay_type == "polynomial":
        polynomial = keras.optimizers.schedules.PolynomialDecay
        decay = polynomial(rate, interval, end, power=options.polynomial_power)
        return decay, {"start": start}
    values = [max(rate * options.luong_decay_factor**k, end) for k in range(times + 1)]
    steps = [start + k * interval for k in range(1, times + 1)]
    return _steps_down(rate, steps, values), {}


def _steps_down(rate, steps, values):
    """Returns a schedule of constant `values` that change at `steps`."""
    if not steps:
        return rate
    # Keras changes the rate one step after a boundary.
    boundaries = [step - 1 for step in steps]
    return keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, values)
