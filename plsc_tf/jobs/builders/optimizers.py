"""The optimizer that the flags ask for."""

import keras

from plsc_tf import private_apis
from plsc_tf.training.average import Averaging
from plsc_tf.training.lars import Lars
from plsc_tf.training.momentum import Momentum

# Names of the weights that `no_weight_decay_on` means, of Keras's own layers; those of
# TensorFlow's variables have the layer before and the replica behind.
_WITHOUT_DECAY = {
    "norms": r"(^|/)(gamma|beta|scale)(/|:|$)",
    "biases": r"(^|/|head_)bias(/|:|$)",
    "prelus": r"(^|/)alpha(/|:|$)",
}


def build(options, rate, *, weight_decay, max_gradient_norm=None):
    """Makes an optimizer.

    `momentum` and `sgd` carry the L2 decay in the velocity as PLSC does, and
    `adamweightdecay` decouples it (arXiv:1711.05101), sparing biases and norms as
    FastNN's does. For the others L2 is added to the gradients by
    `Classifier.compile(l2=...)`.

    Args:
        options: the `Optimizer` flags, FastNN's names and constants.
        rate: learning rate or Keras schedule.
        weight_decay: the L2 factor.
        max_gradient_norm: clip to this global norm, or None.

    Returns:
        (the Keras optimizer, the L2 factor left for `Classifier.compile`).
    """
    optimizer, l2 = _make(options, rate, weight_decay, max_gradient_norm)
    spared = [_WITHOUT_DECAY[name] for name in options.no_weight_decay_on]
    if options.optimizer == "adamweightdecay":
        spared += [_WITHOUT_DECAY["norms"], _WITHOUT_DECAY["biases"]]
    if spared:
        optimizer.exclude_from_weight_decay(var_names=spared)
    return optimizer, l2


def averaging(options):
    """The `Averaging` that the flags ask for, or None.

    Args:
        options: the `Optimizer` flags.
    """
    if not options.ema_decay:
        return None
    return Averaging(options.ema_decay, options.ema_warmup, options.ema_in_use)


def _make(options, rate, weight_decay, max_gradient_norm):
    common = {"learning_rate": rate, "global_clipnorm": max_gradient_norm}
    kind = options.optimizer
    adam = {
        "beta_1": options.adam_beta1,
        "beta_2": options.adam_beta2,
        "epsilon": options.opt_epsilon,
    }
    if kind == "momentum":
        return Momentum(momentum=options.momentum, l2=weight_decay, **common), 0.0
    if kind == "sgd":
        return Momentum(momentum=0.0, l2=weight_decay, **common), 0.0
    if kind == "adamweightdecay":
        return keras.optimizers.AdamW(weight_decay=weight_decay, **adam, **common), 0.0
    if kind == "lars":
        lars = Lars(
            momentum=options.momentum,
            l2=weight_decay,
            coefficient=options.lars_coefficient,
            **common,
        )
        return lars, 0.0
    makers = {
        "adadelta": lambda: keras.optimizers.Adadelta(
            rho=options.adadelta_rho, epsilon=options.opt_epsilon, **common
        ),
        "adagrad": lambda: keras.optimizers.Adagrad(
            initial_accumulator_value=options.adagrad_initial_accumulator_value,
            **common,
        ),
        "adam": lambda: keras.optimizers.Adam(**adam, **common),
        "ftrl": lambda: keras.optimizers.Ftrl(
            learning_rate_power=options.ftrl_learning_rate_power,
            initial_accumulator_value=options.ftrl_initial_accumulator_value,
            l1_regularization_strength=options.ftrl_l1,
            l2_regularization_strength=options.ftrl_l2,
            **common,
        ),
        "rmsprop": lambda: keras.optimizers.RMSprop(
            rho=options.rmsprop_decay,
            momentum=options.rmsprop_momentum,
            epsilon=options.opt_epsilon,
            **common,
        ),
    }
    return makers[kind](), weight_decay


def adopt(optimizer, settings):
    """Makes a user's own optimizer once more, where the model is made.

    Call it inside `strategy.scope()`. PLSC: set_optimizer.

    Args:
        optimizer: a Keras optimizer that has updated nothing yet, with its own rate or
            schedule; or its name.
        settings: the `Settings`.

    Raises:
        ValueError: it is no Keras optimizer, has updated something, or
            max_gradient_norm is set beside it.
    """
    optimizer = keras.optimizers.get(optimizer)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            "The optimizer must be a keras.optimizers.Optimizer or its name. Received: "
            f"{optimizer!r}"
        )
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return keras.optimizers.LossScaleOptimizer(
            adopt(optimizer.inner_optimizer, settings),
            initial_scale=optimizer.initial_scale,
            dynamic_growth_steps=optimizer.dynamic_growth_steps,
        )
    kind = type(optimizer)
    if optimizer.built:
        raise ValueError(
            "The optimizer must be a new one. Received: one of kind "
            f"{kind.__name__} that belongs to another model already."
        )
    bound = settings.optimizer.max_gradient_norm
    if bound is not None:
        raise ValueError(
            "Clipping is part of your own optimizer: "
            f"{kind.__name__}(..., global_clipnorm={bound}). Received: "
            f"max_gradient_norm={bound} beside it."
        )
    rate = private_apis.learning_rate_or_schedule(optimizer)
    if isinstance(rate, keras.Variable):
        rate = float(rate.numpy())
    made = kind.from_config({**optimizer.get_config(), "learning_rate": rate})
    private_apis.copy_exclusions(optimizer, made)
    return made
