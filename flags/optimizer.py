"""Defines the options of the optimizer, with FastNN's constants."""

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option

# A condition, see `plsc_tf.flags.conditions`.
_OURS = "no own_optimizer"


def _with(*optimizers):
    return f"optimizer={','.join(optimizers)} and {_OURS}"


class Optimizer(OptionGroup):
    """Options for the optimizer and its constants; each constant has its optimizer."""

    optimizer: str = option(
        "momentum",
        "name of the optimizer; momentum is PLSC's (FastNN)",
        choices=(
            *("adadelta", "adagrad", "adam", "adamweightdecay", "ftrl"),
            *("lars", "momentum", "sgd", "rmsprop"),
        ),
        applies=_OURS,
    )
    momentum: float = option(
        0.9,
        "decay of the velocity (FastNN)",
        within="[0, 1)",
        applies=_with("momentum", "lars"),
    )
    weight_decay: float = option(
        5e-4,
        "L2 decay, added to the gradient as weight_decay x weight (PLSC; FastNN)",
        lower=0,
        applies=_OURS,
    )
    max_gradient_norm: float | None = option(
        None, "clip the gradients to this global norm (FastNN)", within="(0, inf)"
    )
    no_weight_decay_on: tuple[str, ...] = option(
        (),
        "weights without weight decay: norms, biases, prelus",
        choices=("norms", "biases", "prelus"),
        applies=f"{_OURS} and weight_decay or {_OURS} and weight_decay_on or {_OURS} "
        "and head_weight_decay",
    )
    weight_decay_on: tuple[str, ...] = option(
        (),
        "weight decays by layer, such as conv1:1e-4,stage4:0: regular expressions for"
        " the beginning of the name; the last match counts (Paddle regularizer)",
        check=checks.by_layer,
    )
    ema_decay: float = option(
        0.0,
        "decay of the moving averages of all weights (0.999); 0: no averages",
        within="[0, 1)",
    )
    ema_warmup: bool = option(
        True, "limit ema_decay to (1 + t) / (10 + t) after t steps", applies="ema_decay"
    )
    ema_in_use: bool = option(
        True,
        "use the averages, if they exist, for verification, export and the best "
        "weights",
    )
    gradient_accumulation_steps: int = option(
        1,
        "parts into which a replica's batch is split; batch_size counts all of them",
        lower=1,
    )
    adadelta_rho: float = option(
        0.95, "decay rate (FastNN)", within="[0, 1]", applies=_with("adadelta")
    )
    adagrad_initial_accumulator_value: float = option(
        0.1,
        "initial value of the accumulators (FastNN)",
        lower=0,
        applies=_with("adagrad"),
    )
    adam_beta1: float = option(
        0.9,
        "decay of the first moment (FastNN)",
        within="[0, 1)",
        applies=_with("adam", "adamweightdecay"),
    )
    adam_beta2: float = option(
        0.999,
        "decay of the second moment (FastNN)",
        within="[0, 1)",
        applies=_with("adam", "adamweightdecay"),
    )
    opt_epsilon: float = option(
        1.0,
        "constant added to the denominator (FastNN)",
        lower=0,
        applies=_with("adam", "adamweightdecay", "adadelta", "rmsprop"),
    )
    lars_coefficient: float = option(
        0.001,
        "trust coefficient (eta in the paper)",
        within="(0, inf)",
        applies=_with("lars"),
    )
    ftrl_learning_rate_power: float = option(
        -0.5,
        "exponent of the learning rate (FastNN)",
        within="[-inf, 0]",
        applies=_with("ftrl"),
    )
    ftrl_initial_accumulator_value: float = option(
        0.1,
        "initial value of the accumulators (FastNN)",
        lower=0,
        applies=_with("ftrl"),
    )
    ftrl_l1: float = option(
        0.0, "strength of L1 regularization (FastNN)", lower=0, applies=_with("ftrl")
    )
    ftrl_l2: float = option(
        0.0, "strength of L2 regularization (FastNN)", lower=0, applies=_with("ftrl")
    )
    rmsprop_momentum: float = option(
        0.9, "momentum (FastNN)", within="[0, 1)", applies=_with("rmsprop")
    )
    rmsprop_decay: float = option(
        0.9,
        "decay of the squared gradients (FastNN)",
        within="[0, 1)",
        applies=_with("rmsprop"),
    )

    @property
    def layer_decays(self) -> dict[str, float]:
        """`weight_decay_on` as `{regular expression: factor}`."""
        return checks.by_layer("weight_decay_on", self.weight_decay_on)
