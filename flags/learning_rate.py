"""The learning rate and how it changes; formulas in docs/schedules.md."""

import dataclasses

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option

# Conditions, see `plsc_tf.flags.conditions`.
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
        "expression that matches the beginning of their names: conv1:0.1,stage4:2; "
        "the last one that matches a layer counts",
        check=checks.by_layer,
    )
    learning_rate_decay_type: str = option(
        "piecewise",
        "piecewise: x learning_rate_decay_factor at each of lr_steps, as in PLSC; "
        "exponential: the same once per epoch; fixed; polynomial, cosine and linear "
        "fall to end_learning_rate, linear (MindSpore's) from the end of the warm-up "
        "(FastNN learning_rate_decay_type, exponential)",
        choices=(
            *("piecewise", "fixed", "polynomial", "cosine"),
            *("exponential", "linear"),
        ),
        applies=f"{_OURS} and no decay_scheme",
    )
    lr_steps: tuple[int, ...] = option(
        (100000, 160000, 220000),
        "steps at which piecewise decays (PLSC lr_steps)",
        lower=1,
        check=checks.growing,
        applies=f"{_DECAY}=piecewise and no lr_epochs",
    )
    lr_epochs: tuple[float, ...] = option(
        (),
        "epochs at which piecewise decays, also fractions, instead of lr_steps: after "
        "the same images at every batch size",
        within="(0, inf)",
        check=checks.growing,
        applies=f"{_DECAY}=piecewise",
    )
    lr_steps_batch_size: int = option(
        0,
        "global batch that lr_steps and warmup_steps are counted in, 1024 for PLSC's: "
        "with another one they mean as many images; 0: the run's own",
        lower=0,
        applies=f"{_DECAY}=piecewise and no lr_epochs or {_OURS} and warmup_steps",
    )
    learning_rate_decay_factor: float = option(
        0.1,
        "factor of one decay (PLSC 0.1; FastNN learning_rate_decay_factor, 0.94)",
        within="(0, inf)",
        applies=f"{_DECAY}=piecewise,exponential",
    )
    decay_scheme: str | None = option(
        None,
        "halve the rate 5 or 10 times in the second half of the steps (luong5, "
        "luong10), or 4 times in the last third (luong234); of stop_at_step steps if "
        "that is set, as in FastNN (FastNN decay_scheme)",
        choices=("luong5", "luong10", "luong234"),
        applies=_OURS,
    )
    luong_decay_factor: float = option(
        0.5,
        "factor of one decay of decay_scheme; 0.5 in FastNN's manual, its code takes "
        "learning_rate_decay_factor",
        within="(0, 1]",
        applies=_SCHEME,
    )
    warmup_epochs: float = option(
        0.0,
        "epochs in which the rate grows to learning_rate, may be a fraction (PLSC "
        "warmup_epochs)",
        lower=0,
        applies=_OURS,
    )
    warmup_steps: int = option(
        0, "the same in steps (FastNN warmup_steps)", lower=0, applies=_OURS
    )
    warmup_scheme: str = option(
        "linear",
        "how it grows. linear: from 0, the first step has one part already; "
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
        "epochs that the decay is planned for, however long the training is; None: "
        "num_epochs (MindSpore total_epochs)",
        within="(0, inf)",
        applies=f"{_DECAY}=polynomial,cosine,linear or {_SCHEME}",
    )
    polynomial_power: float = option(
        1.0,
        "power of the polynomial decay; 1 is a line",
        within="(0, inf)",
        applies=f"{_DECAY}=polynomial",
    )
    lr_base_batch_size: int = option(
        1024,
        "the learning rate is multiplied by global batch / this; 0: not scaled (PLSC's "
        "rule)",
        lower=0,
        applies=_OURS,
    )

    REFUSED = {
        "warmup_steps and warmup_epochs": "warmup_steps and warmup_epochs set the same "
        "in two units: set one of them.",
        "lr_epochs and no learning_rate_decay_type=piecewise": "lr_epochs are for "
        "learning_rate_decay_type=piecewise.",
        "lr_epochs and lr_steps and given lr_steps": "lr_steps and lr_epochs set the "
        "same in two units: set one of them.",
        "decay_scheme and lr_epochs or "
        "decay_scheme and no learning_rate_decay_type=piecewise,exponential,polynomial"
        "": "decay_scheme is a decay itself: leave lr_epochs out, and "
        "learning_rate_decay_type or set it to exponential or polynomial.",
    }

    @property
    def layer_factors(self) -> dict[str, float]:
        """`learning_rate_factors` as `{regular expression: factor}`."""
        return checks.by_layer("learning_rate_factors", self.learning_rate_factors)
