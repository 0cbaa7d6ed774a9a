"""Defines the options of the optimizer, with FastNN's constants."""

from plsc_tf.flags import checks
from plsc_tf.flags.option import Amount, OptionGroup, Positive, option, option_if

# A condition, see `plsc_tf.flags.conditions`.
_OURS = "no own_optimizer"


def _of(*optimizers):
    """Returns `option` for constants of these optimizers."""
    return option_if(f"optimizer={','.join(optimizers)} and {_OURS}")


_ours = option_if(_OURS)
_adam, _ftrl, _rmsprop = _of("adam", "adamweightdecay"), _of("ftrl"), _of("rmsprop")


class Optimizer(OptionGroup):
    """Options for the optimizer; each constant applies only to certain optimizers."""

    optimizer: str = _ours(
        "momentum",
        "update rule; PLSC uses momentum (FastNN)",
        choices="adadelta adagrad adam adamweightdecay ftrl lars momentum sgd rmsprop",
    )
    momentum: float = _of("momentum", "lars")(
        0.9, "decay of the velocity (FastNN)", within="[0, 1)"
    )
    weight_decay: Amount = _ours(5e-4, "L2 decay, added to the gradient (PLSC; FastNN)")
    max_gradient_norm: float | None = option(
        None, "clip the gradients to this global norm (FastNN)", within="(0, inf)"
    )
    no_weight_decay_on: tuple[str, ...] = option(
        (),
        "weights without weight decay",
        choices="norms biases prelus",
        applies=" or ".join(
            f"{_OURS} and {name}"
            for name in ("weight_decay", "weight_decay_on", "head_weight_decay")
        ),
    )
    weight_decay_on: tuple[str, ...] = option(
        (),
        "weight decay by layer, such as conv1:1e-4; see learning_rate_factors",
        check=checks.by_layer,
    )
    ema_decay: float = option(
        0.0, "moving averages of all weights, such as 0.999; 0: none", within="[0, 1)"
    )
    ema_in_use: bool = option(
        True, "use the averages, if they exist, to verify and export"
    )
    gradient_accumulation_steps: Positive = option(
        1, "parts into which a replica's batch is split, to save memory"
    )
    adadelta_rho: float = _of("adadelta")(0.95, "decay rate (FastNN)", within="[0, 1]")
    adagrad_initial_accumulator_value: Amount = _of("adagrad")(
        0.1, "initial accumulators (FastNN)"
    )
    adam_beta1: float = _adam(0.9, "first moment's decay (FastNN)", within="[0, 1)")
    adam_beta2: float = _adam(0.999, "second moment's decay (FastNN)", within="[0, 1)")
    opt_epsilon: Amount = _of("adam", "adamweightdecay", "adadelta", "rmsprop")(
        1.0, "added to the denominator (FastNN)"
    )
    lars_coefficient: float = _of("lars")(
        0.001, "trust coefficient (eta)", within="(0, inf)"
    )
    ftrl_learning_rate_power: float = _ftrl(
        -0.5, "exponent of the rate (FastNN)", within="[-inf, 0]"
    )
    ftrl_initial_accumulator_value: Amount = _ftrl(0.1, "initial accumulators (FastNN)")
    ftrl_l1: Amount = _ftrl(0.0, "strength of L1 regularization (FastNN)")
    ftrl_l2: Amount = _ftrl(0.0, "strength of L2 regularization (FastNN)")
    rmsprop_momentum: float = _rmsprop(0.9, "momentum (FastNN)", within="[0, 1)")
    rmsprop_decay: float = _rmsprop(
        0.9, "decay of squared gradients (FastNN)", within="[0, 1)"
    )
