"""The learning rate and how it changes; formulas in docs/schedules.md."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, by_layer, option

# Decay types that mean something together with a luong scheme.
WITH_SCHEME = ("piecewise", "exponential", "polynomial")
# Conditions, see `plsc_tf.options.effects`.
_OURS = "no own_optimizer"
_SCHEME = f"{_OURS} and decay_scheme"
_DECAY = f"{_OURS} and no decay_scheme and learning_rate_decay_type"


@dataclasses.dataclass(frozen=True)
class LearningRate(OptionGroup):
    """The schedule of the learning rate."""

    learning_rate: float = option(
        0.1,
        "learning rate at a global batch of lr_base_batch_size (PLSC lr; FastNN "
        "learning_rate, 0.01)",
        lower=0,
        aliases=("lr",),
        applies=_OURS,
    )
    learning_rate_factors: tuple[str, ...] = option(
        (),
        "multiples of the learning rate for layers of the network, by a regular "
        "expression that the beginnings of their names match, such as "
        "conv1:0.1,stage4:2; where several match a layer, the last one counts",
    )
    learning_rate_decay_type: str = option(
        "piecewise",
        "piecewise: x learning_rate_decay_factor at each of lr_steps, as in PLSC; "
        "exponential: so once per epoch; fixed; polynomial, cosine and linear run down "
        "to end_learning_rate, linear (MindSpore's) from the end of the warm-up on "
        "(FastNN learning_rate_decay_type, exponential)",
        choices=(
            "piecewise",
            "fixed",
            "polynomial",
            "cosine",
            "exponential",
            "linear",
        ),
        applies=f"{_OURS} and no decay_scheme",
    )
    lr_steps: tuple[int, ...] = option(
        (100000, 160000, 220000),
        "steps at which piecewise decays (PLSC lr_steps)",
        lower=1,
        applies=f"{_DECAY}=piecewise and no lr_epochs",
    )
    lr_epochs: tuple[float, ...] = option(
        (),
        "epochs at which piecewise decays, may be fractions, instead of lr_steps: the "
        "same pictures at every batch size",
        lower=0,
        open_ends="lower",
        applies=f"{_DECAY}=piecewise",
    )
    lr_steps_batch_size: int = option(
        0,
        "global batch that lr_steps and warmup_steps are counted in, 1024 for PLSC's: "
        "with another one they are as many pictures; 0: the run's own",
        lower=0,
        applies=f"{_DECAY}=piecewise and no lr_epochs or {_OURS} and warmup_steps",
    )
    learning_rate_decay_factor: float = option(
        0.1,
        "factor of one decay (PLSC 0.1; FastNN learning_rate_decay_factor, 0.94)",
        lower=0,
        open_ends="lower",
        applies=f"{_DECAY}=piecewise,exponential",
    )
    decay_scheme: str | None = option(
        None,
        "halves the rate 5 or 10 times in the second half of the steps (luong5, "
        "luong10), or 4 times in the last third (luong234). The steps are stop_at_step "
        "where it is set, as in FastNN (FastNN decay_scheme)",
        choices=("luong5", "luong10", "luong234"),
        applies=_OURS,
    )
    luong_decay_factor: float = option(
        0.5,
        "factor of one decay of decay_scheme; FastNN's manual says 0.5, its code takes "
        "learning_rate_decay_factor",
        lower=0,
        upper=1,
        open_ends="lower",
        applies=_SCHEME,
    )
    warmup_epochs: float = option(
        0.0,
        "epochs in which the rate grows from a small value to learning_rate, may be a "
        "fraction (PLSC warmup_epochs)",
        lower=0,
        applies=_OURS,
    )
    warmup_steps: int = option(
        0,
        "the same in steps (FastNN warmup_steps)",
        lower=0,
        applies=_OURS,
    )
    warmup_scheme: str = option(
        "linear",
        "how it grows. linear: from 0, of which the first step has one part already; "
        "linear_from_zero: the first step has 0 (MindSpore, arcface_torch); "
        "linear_from_lr: from the rate before it is scaled to the batch (PLSC's "
        "code); t2t: exponentially from a hundredth (FastNN warmup_scheme)",
        choices=("linear", "linear_from_zero", "linear_from_lr", "t2t"),
        applies=f"{_OURS} and warmup_epochs or {_OURS} and warmup_steps",
    )
    end_learning_rate: float = option(
        0.0001,
        "rate that polynomial, cosine and linear end at, and that exponential and "
        "decay_scheme do not go below (FastNN end_learning_rate)",
        lower=0,
        applies=f"{_DECAY}=polynomial,cosine,linear,exponential or {_SCHEME}",
    )
    lr_total_epochs: float | None = option(
        None,
        "epochs that the decay is planned for, however long is trained; None: "
        "num_epochs (MindSpore total_epochs)",
        lower=0,
        open_ends="lower",
        applies=f"{_DECAY}=polynomial,cosine,linear or {_SCHEME}",
    )
    polynomial_power: float = option(
        1.0,
        "power of the polynomial decay; 1 is a line",
        lower=0,
        open_ends="lower",
        applies=f"{_DECAY}=polynomial",
    )
    lr_base_batch_size: int = option(
        1024,
        "the learning rate is multiplied by global batch / this; 0: not scaled (PLSC's "
        "rule)",
        lower=0,
        applies=_OURS,
    )

    @property
    def layer_factors(self):
        """`learning_rate_factors` as `{regular expression: factor}`."""
        return by_layer("learning_rate_factors", self.learning_rate_factors)

    def __post_init__(self):
        super().__post_init__()
        for name in ("lr_steps", "lr_epochs"):
            values = getattr(self, name)
            if list(values) != sorted(set(values)):
                raise ValueError(
                    f"{name} must be growing numbers. Received: {name}="
                    f"{','.join(map(str, values))}."
                )
        _ = self.layer_factors  # which raises for bad ones
        if self.warmup_steps and self.warmup_epochs:
            raise ValueError(
                "warmup_steps and warmup_epochs say the same in two units: set one of "
                f"them. Received: warmup_steps={self.warmup_steps}, "
                f"warmup_epochs={self.warmup_epochs}."
            )
        kind = self.learning_rate_decay_type
        if self.lr_epochs and kind != "piecewise":
            raise ValueError(
                "lr_epochs are for learning_rate_decay_type=piecewise. Received: "
                f"learning_rate_decay_type={kind}."
            )
        if self.lr_epochs and self.lr_steps != _default("lr_steps"):
            raise ValueError(
                "lr_steps and lr_epochs say the same in two units: set one of them. "
                f"Received: lr_steps={','.join(map(str, self.lr_steps))}, "
                f"lr_epochs={','.join(map(str, self.lr_epochs))}."
            )
        if self.decay_scheme and (kind not in WITH_SCHEME or self.lr_epochs):
            raise ValueError(
                f"decay_scheme={self.decay_scheme} is a decay of its own: leave "
                "lr_epochs out, and learning_rate_decay_type or set it to exponential "
                f"or polynomial. Received: learning_rate_decay_type={kind}."
            )


def _default(name):
    return LearningRate.__dataclass_fields__[name].default
