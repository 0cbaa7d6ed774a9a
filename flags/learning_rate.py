"""Defines the options of the learning rate; see docs/schedules.md for the formulas."""

from plsc_tf.flags import checks
from plsc_tf.flags.option import Amount, Count, OptionGroup, Positive, option, option_if

# Conditions, see `plsc_tf.flags.conditions`.
_OURS = "no own_optimizer"
_ours = option_if(_OURS)
_SCHEME = f"{_OURS} and decay_scheme"
_DECAY = f"{_OURS} and no decay_scheme and learning_rate_decay_type"


class LearningRate(OptionGroup):
    """Options for the learning rate and its schedule."""

    learning_rate: Amount = _ours(
        0.1, "rate for a global batch of lr_base_batch_size (PLSC)", aliases="lr"
    )
    learning_rate_factors: tuple[str, ...] = option(
        (),
        "factors of the rate by layer, such as conv1:0.1,stage4:2: regular expressions "
        "for the beginning of the name; the last match counts",
        check=checks.by_layer,
    )
    learning_rate_decay_type: str = option(
        "piecewise",
        "piecewise: at lr_steps; exponential: once per epoch; polynomial, cosine and "
        "linear: down to end_learning_rate; fixed: never (FastNN)",
        choices="piecewise fixed polynomial cosine exponential linear",
        applies=f"{_OURS} and no decay_scheme",
    )
    lr_steps: tuple[Positive, ...] = option(
        (100000, 160000, 220000),
        "steps at which piecewise decays (PLSC)",
        check=checks.growing,
        applies=f"{_DECAY}=piecewise and no lr_epochs",
    )
    lr_epochs: tuple[float, ...] = option(
        (),
        "epochs, or fractions, at which piecewise decays, instead of lr_steps",
        within="(0, inf)",
        check=checks.growing,
        applies=f"{_DECAY}=piecewise",
    )
    learning_rate_decay_factor: float = option(
        0.1,
        "factor of each decay (PLSC; FastNN)",
        within="(0, inf)",
        applies=f"{_DECAY}=piecewise,exponential",
    )
    decay_scheme: str | None = _ours(
        None,
        "halve the rate 5 or 10 times in the second half (luong5, luong10), or 4 times "
        "in the last third (luong234) (FastNN)",
        choices="luong5 luong10 luong234",
    )
    luong_decay_factor: float = option(
        0.5, "factor of each decay", within="(0, 1]", applies=_SCHEME
    )
    warmup_epochs: Amount = _ours(
        0.0, "epochs, or fractions, in which the rate rises to its value (PLSC)"
    )
    warmup_steps: Count = _ours(
        0, "length of the warm-up in steps, instead of warmup_epochs (FastNN)"
    )
    warmup_scheme: str = option(
        "linear",
        "linear; linear_from_zero: with a rate of 0 in the first step (MindSpore); "
        "linear_from_lr: from the unscaled rate (PLSC); t2t: exponential (FastNN)",
        choices="linear linear_from_zero linear_from_lr t2t",
        applies=f"{_OURS} and warmup_epochs or {_OURS} and warmup_steps",
    )
    end_learning_rate: Amount = option(
        0.0001,
        "lowest rate of all decays except piecewise (FastNN)",
        applies=f"{_DECAY}=polynomial,cosine,linear,exponential or {_SCHEME}",
    )
    lr_total_epochs: float | None = option(
        None,
        "epochs of the decay; None: num_epochs (MindSpore total_epochs)",
        within="(0, inf)",
        applies=f"{_DECAY}=polynomial,cosine,linear or {_SCHEME}",
    )
    polynomial_power: float = option(
        1.0, "exponent; 1: linear", within="(0, inf)", applies=f"{_DECAY}=polynomial"
    )
    lr_base_batch_size: Count = _ours(
        1024, "multiply the rate by global batch / this; 0: do not (PLSC)"
    )

    REFUSED = {
        "warmup_steps and warmup_epochs": "Set only one of these two options.",
        "lr_epochs and no learning_rate_decay_type=piecewise": "lr_epochs needs "
        "learning_rate_decay_type=piecewise.",
        "decay_scheme and lr_epochs or "
        "decay_scheme and no learning_rate_decay_type=piecewise,exponential,polynomial"
        "": "decay_scheme replaces learning_rate_decay_type and lr_epochs: leave "
        "them out.",
    }
