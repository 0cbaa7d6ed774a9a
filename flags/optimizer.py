"""The optimizer of backbone and head, with FastNN's constants."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, by_layer, option

# A condition, see `plsc_tf.options.effects`.
_OURS = "no own_optimizer"


@dataclasses.dataclass(frozen=True)
class Optimizer(OptionGroup):
    """The optimizer and its constants; each is read by its own optimizer only."""

    optimizer: str = option(
        "momentum",
        "optimizer by name; momentum is PLSC's (FastNN optimizer, rmsprop)",
        choices=(
            "adadelta",
            "adagrad",
            "adam",
            "adamweightdecay",
            "ftrl",
            "lars",
            "momentum",
            "sgd",
            "rmsprop",
        ),
        applies=_OURS,
    )
    momentum: float = option(
        0.9,
        "momentum, lars: share of the velocity kept (FastNN momentum)",
        lower=0,
        upper=1,
        open_ends="upper",
        applies=f"optimizer=momentum,lars and {_OURS}",
    )
    weight_decay: float = option(
        5e-4,
        "L2 decay, added to the gradient as weight_decay x weight (PLSC's optimizer; "
        "FastNN weight_decay, 0.00004)",
        lower=0,
        applies="no own_optimizer",
    )
    max_gradient_norm: float | None = option(
        None,
        "clip the gradients to this global norm; None: no clipping (FastNN "
        "max_gradient_norm)",
        lower=0,
        open_ends="lower",
    )
    no_weight_decay_on: tuple[str, ...] = option(
        (),
        "weights without weight decay: norms (scale and shift), biases, prelus (their "
        "slopes); none in PLSC. adamweightdecay spares norms and biases always, as in "
        "FastNN",
        choices=("norms", "biases", "prelus"),
        applies=f"{_OURS} and weight_decay or {_OURS} and weight_decay_on or {_OURS} "
        "and head_weight_decay",
    )
    weight_decay_on: tuple[str, ...] = option(
        (),
        "weight decays of layers of the network in the place of weight_decay, by a "
        "regular expression that the beginnings of their names match, such as "
        "conv1:1e-4,stage4:0; where several match a layer, the last one counts. "
        "no_weight_decay_on spares weights in them too (Paddle: a regularizer per "
        "parameter)",
    )
    ema_decay: float = option(
        0.0,
        "decay of the moving averages of all weights, such as 0.999; 0: none. They "
        "take the memory of one more slot",
        lower=0,
        upper=1,
        open_ends="upper",
    )
    ema_warmup: bool = option(
        True,
        "ema_decay is at most (1 + t) / (10 + t) after t steps, so that the first "
        "weights are soon forgotten",
        applies="ema_decay",
    )
    ema_in_use: bool = option(
        True,
        "verify, export and keep as the best the averages instead of the weights, "
        "where there are some",
    )
    gradient_accumulation_steps: int = option(
        1,
        "parts that a replica's batch is cut into, worked on one after the other "
        "before the one update; batch_size counts all of them (in arcface_torch's "
        "gradient_acc it counts one)",
        lower=1,
    )
    adadelta_rho: float = option(
        0.95,
        "adadelta: decay rate (FastNN adadelta_rho)",
        lower=0,
        upper=1,
        applies=f"optimizer=adadelta and {_OURS}",
    )
    adagrad_initial_accumulator_value: float = option(
        0.1,
        "adagrad: first value of the accumulators (FastNN "
        "adagrad_initial_accumulator_value)",
        lower=0,
        applies=f"optimizer=adagrad and {_OURS}",
    )
    adam_beta1: float = option(
        0.9,
        "adam, adamweightdecay: decay of the first moment (FastNN adam_beta1)",
        lower=0,
        upper=1,
        open_ends="upper",
        applies=f"optimizer=adam,adamweightdecay and {_OURS}",
    )
    adam_beta2: float = option(
        0.999,
        "adam, adamweightdecay: decay of the second moment (FastNN adam_beta2)",
        lower=0,
        upper=1,
        open_ends="upper",
        applies=f"optimizer=adam,adamweightdecay and {_OURS}",
    )
    opt_epsilon: float = option(
        1.0,
        "adam, adamweightdecay, adadelta, rmsprop: added to the denominator (FastNN "
        "opt_epsilon)",
        lower=0,
        applies=f"optimizer=adam,adamweightdecay,adadelta,rmsprop and {_OURS}",
    )
    lars_coefficient: float = option(
        0.001,
        "lars: trust coefficient, which a weight's rate is proportional to "
        "(arXiv:1708.03888, eta)",
        lower=0,
        open_ends="lower",
        applies=f"optimizer=lars and {_OURS}",
    )
    ftrl_learning_rate_power: float = option(
        -0.5,
        "ftrl: power of the rate (FastNN ftrl_learning_rate_power)",
        upper=0,
        applies=f"optimizer=ftrl and {_OURS}",
    )
    ftrl_initial_accumulator_value: float = option(
        0.1,
        "ftrl: first value of the accumulators (FastNN ftrl_initial_accumulator_value)",
        lower=0,
        applies=f"optimizer=ftrl and {_OURS}",
    )
    ftrl_l1: float = option(
        0.0,
        "ftrl: L1 strength (FastNN ftrl_l1)",
        lower=0,
        applies=f"optimizer=ftrl and {_OURS}",
    )
    ftrl_l2: float = option(
        0.0,
        "ftrl: L2 strength (FastNN ftrl_l2)",
        lower=0,
        applies=f"optimizer=ftrl and {_OURS}",
    )
    rmsprop_momentum: float = option(
        0.9,
        "rmsprop: momentum (FastNN rmsprop_momentum)",
        lower=0,
        upper=1,
        open_ends="upper",
        applies=f"optimizer=rmsprop and {_OURS}",
    )
    rmsprop_decay: float = option(
        0.9,
        "rmsprop: decay of the squared gradients (FastNN rmsprop_decay)",
        lower=0,
        upper=1,
        open_ends="upper",
        applies=f"optimizer=rmsprop and {_OURS}",
    )

    def __post_init__(self):
        super().__post_init__()
        _ = self.layer_decays  # which raises for bad ones

    @property
    def layer_decays(self):
        """`weight_decay_on` as `{regular expression: factor}`."""
        return by_layer("weight_decay_on", self.weight_decay_on)
