"""Learning rates over the steps of a run."""

import keras


@keras.saving.register_keras_serializable("plsc_tf")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Grows linearly from 0 to a schedule's start, then follows the schedule.

    The schedule counts its own steps from the start of training, as PLSC's and
    arcface_torch's do. PLSC starts the growth at the rate before it is scaled to the
    batch, which shrinks for batches below 1024; this starts at 0.

    Args:
        schedule: Keras `LearningRateSchedule`, or a float.
        warmup_steps: steps of growth.
    """

    def __init__(self, schedule, warmup_steps):
        self.schedule = schedule
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        """The rate of a step, float32 scalar."""
        step = keras.ops.cast(step, "float32")
        after = self.schedule(step) if callable(self.schedule) else self.schedule
        if not self.warmup_steps:
            return keras.ops.convert_to_tensor(after, "float32")
        first = self.schedule(0.0) if callable(self.schedule) else self.schedule
        growing = first * (step + 1.0) / self.warmup_steps
        return keras.ops.where(step < self.warmup_steps, growing, after)

    def get_config(self):
        """The constructor's arguments."""
        return {"schedule": self.schedule, "warmup_steps": self.warmup_steps}


def scaled_rate(rate, global_batch_size, base_batch_size):
    """PLSC's rule lr · total batch / 1024; a base of 0 leaves the rate as it is."""
    if not base_batch_size:
        return rate
    return rate * global_batch_size / base_batch_size


def build(options, *, rate, steps_per_epoch, total_steps):
    """The schedule that the learning-rate flags ask for.

    Args:
        options: the `LearningRate` flags.
        rate: rate at the start, after scaling.
        steps_per_epoch: for `warmup_epochs`.
        total_steps: where polynomial, cosine and exponential decay end.

    Raises:
        ValueError: the warm-up is longer than the run.
    """
    schedules = keras.optimizers.schedules
    warmup = round(options.warmup_epochs * steps_per_epoch)
    if warmup >= total_steps and warmup:
        raise ValueError(
            f"warmup_epochs={options.warmup_epochs} is {warmup} steps, but the run has "
            f"{total_steps}. Lower warmup_epochs or train longer."
        )
    kind = options.learning_rate_decay_type
    end = min(options.end_learning_rate, rate)
    if kind == "piecewise":
        # Keras changes the rate one step after a boundary, PLSC at it.
        boundaries = [step - 1 for step in options.lr_steps]
        factor = options.learning_rate_decay_factor
        values = [rate * factor**i for i in range(len(boundaries) + 1)]
        decay = schedules.PiecewiseConstantDecay(boundaries, values)
    elif kind == "polynomial":
        decay = schedules.PolynomialDecay(
            rate, total_steps, end, power=options.polynomial_power
        )
    elif kind == "cosine":
        decay = schedules.CosineDecay(rate, total_steps, alpha=end / (rate or 1.0))
    elif kind == "exponential":
        decay = schedules.ExponentialDecay(
            rate, steps_per_epoch, options.learning_rate_decay_factor, staircase=True
        )
    else:
        decay = rate
    return WarmUp(decay, warmup)
