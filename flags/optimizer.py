"""The optimizer of backbone and head, with FastNN's constants."""

import dataclasses

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option

# A condition, see `plsc_tf.flags.conditions`.
_OURS = "no own_optimizer"


def _with(*optimizers):
    return f"optimizer={','.join(optimizers)} and {_OURS}"


@dataclasses.dataclass(frozen=True)
class Optimizer(OptionGroup):
    """The optimizer and its constants; each is read by its own optimizer only."""

    optimizer: str = option(
        "momentum",
        "optimizer by name; momentum is PLSC's (FastNN optimizer, rmsprop)",
        choices=(
            *("adadelta", "adagrad", "adam", "adamweightdecay", "ftrl"),
            *("lars", "momentum", "sgd", "rmsprop"),
        ),
        applies=_OURS,
    )
    momentum: float = option(
        0.9,
        "momentum, lars: share of the velocity kept (FastNN momentum)",
        within="[0, 1)",
        applies=_with("momentum", "lars"),
    )
    weight_decay: float = option(
        5e-4,
        "L2 decay, added to the gradient as weight_decay x weight (PLSC's optimizer; "
        "FastNN weight_decay, 0.00004)",
        lower=0,
        applies=_OURS,
    )
    max_gradient_norm: float | None = option(
        None,
        "clip the gradients to this global norm; None: no clipping (FastNN "
        "max_gradient_norm)",
        within="(0, inf)",
    )
    no_weight_decay_on: tuple[str, ...] = option(
        (),
        "weights without weight decay: norms (scale and shift), biases, prelus (their "
        "slopes); none in PLSC. adamweightdecay always spares norms and biases, as in "
        "FastNN",
        choices=("norms", "biases", "prelus"),
        applies=f"{_OURS} and weight_decay or {_OURS} and weight_decay_on or {_OURS} "
        "and head_weight_decay",
    )
    weight_decay_on: tuple[str, ...] = option(
        (),
        "weight decays of layers of the network instead of weight_decay, by a regular "
        "expression that matches the beginning of their names: conv1:1e-4,stage4:0; "
        "the last one that matches a layer counts. no_weight_decay_on spares weights "
        "in them too (Paddle: a regularizer per parameter)",
        check=checks.by_layer,
    )
    ema_decay: float = option(
        0.0,
        "decay of the moving averages of all weights, such as 0.999; 0: none. They "
        "take the memory of one more slot",
        within="[0, 1)",
    )
    ema_warmup: bool = option(
        True,
        "limit ema_decay to (1 + t) / (10 + t) after t steps, so that the first "
        "weights are soon forgotten",
        applies="ema_decay",
    )
    ema_in_use: bool = option(
        True,
        "verify, export and keep as the best the averages instead of the weights, if "
        "there are averages",
    )
    gradient_accumulation_steps: int = option(
        1,
        "parts that a replica's batch is cut into and worked on one after the other "
        "before the one update; batch_size counts all of them (in arcface_torch's "
        "gradient_acc it counts one)",
        lower=1,
    )
    adadelta_rho: float = option(
        0.95,
        "adadelta: decay rate (FastNN adadelta_rho)",
        within="[0, 1]",
        applies=_with("adadelta"),
    )
    adagrad_initial_accumulator_value: float = option(
        0.1,
        "adagrad: initial accumulators (FastNN adagrad_initial_accumulator_value)",
        lower=0,
        applies=_with("adagrad"),
    )
    adam_beta1: float = option(
        0.9,
        "adam, adamweightdecay: decay of the first moment (FastNN adam_beta1)",
        within="[0, 1)",
        applies=_with("adam", "adamweightdecay"),
    )
    adam_beta2: float = option(
        0.999,
        "adam, adamweightdecay: decay of the second moment (FastNN adam_beta2)",
        within="[0, 1)",
        applies=_with("adam", "adamweightdecay"),
    )
    opt_epsilon: float = option(
        1.0,
        "adam, adamweightdecay, adadelta, rmsprop: added to the denominator (FastNN "
        "opt_epsilon)",
        lower=0,
        applies=_with("adam", "adamweightdecay", "adadelta", "rmsprop"),
    )
    lars_coefficient: float = option(
        0.001,
        "lars: trust coefficient, to which a weight's rate is proportional "
        "(arXiv:1708.03888, eta)",
        within="(0, inf)",
        applies=_with("lars"),
    )
    ftrl_learning_rate_power: float = option(
        -0.5,
        "ftrl: power of the rate (FastNN ftrl_learning_rate_power)",
        within="[-inf, 0]",
        applies=_with("ftrl"),
    )
    ftrl_initial_accumulator_value: float = option(
        0.1,
        "ftrl: initial accumulators (FastNN ftrl_initial_accumulator_value)",
        lower=0,
        applies=_with("ftrl"),
    )
    ftrl_l1: float = option(
        0.0, "ftrl: L1 strength (FastNN ftrl_l1)", lower=0, applies=_with("ftrl")
    )
    ftrl_l2: float = option(
        0.0, "ftrl: L2 strength (FastNN ftrl_l2)", lower=0, applies=_with("ftrl")
    )
    rmsprop_momentum: float = option(
        0.9,
        "rmsprop: momentum (FastNN rmsprop_momentum)",
        within="[0, 1)",
        applies=_with("rmsprop"),
    )
    rmsprop_decay: float = option(
        0.9,
        "rmsprop: decay of the squared gradients (FastNN rmsprop_decay)",
        within="[0, 1)",
        applies=_with("rmsprop"),
    )

    @property
    def layer_decays(self) -> dict[str, float]:
        """`weight_decay_on` as `{regular expression: factor}`."""
        return checks.by_layer("weight_decay_on", self.weight_decay_on)
