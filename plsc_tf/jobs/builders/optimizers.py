"""Builds the optimizer that the options describe."""

import functools

from keras import Variable, optimizers

from plsc_tf import private_apis
from plsc_tf.requirements import require
from plsc_tf.training.optimizers import Lars, Momentum

# {value of `no_weight_decay_on`: pattern of the weights' names in Keras's layers}. A
# TensorFlow variable's name also has the layer in front and the replica at the end.
_WITHOUT_DECAY = {
    "norms": r"(^|/)(gamma|beta|scale)(/|:|$)",
    "biases": r"(^|/|head_)bias(/|:|$)",
    "prelus": r"(^|/)alpha(/|:|$)",
}

_L2 = {"l2": "weight_decay"}
_ADAM = {"beta_1": "adam_beta1", "beta_2": "adam_beta2", "epsilon": "opt_epsilon"}
_EPSILON = {"epsilon": "opt_epsilon"}
# {optimizer: (class, {argument: option})}.
_KINDS = {
    "momentum": (Momentum, {**_L2, "momentum": "momentum"}),
    "sgd": (functools.partial(Momentum, momentum=0.0), _L2),
    "lars": (Lars, {**_L2, "momentum": "momentum", "coefficient": "lars_coefficient"}),
    "adamweightdecay": (optimizers.AdamW, {**_ADAM, "weight_decay": "weight_decay"}),
    "adam": (optimizers.Adam, _ADAM),
    "adadelta": (optimizers.Adadelta, {"rho": "adadelta_rho", **_EPSILON}),
    "adagrad": (
        optimizers.Adagrad,
        {"initial_accumulator_value": "adagrad_initial_accumulator_value"},
    ),
    "ftrl": (
        optimizers.Ftrl,
        {
            "learning_rate_power": "ftrl_learning_rate_power",
            "initial_accumulator_value": "ftrl_initial_accumulator_value",
            "l1_regularization_strength": "ftrl_l1",
            "l2_regularization_strength": "ftrl_l2",
        },
    ),
    "rmsprop": (
        optimizers.RMSprop,
        {"rho": "rmsprop_decay", "momentum": "rmsprop_momentum", **_EPSILON},
    ),
}


def build(options, rate):
    """Builds an optimizer.

    `momentum`, `sgd` and `lars` include the L2 decay in the velocity as PLSC does.
    `adamweightdecay` decouples it (arXiv:1711.05101) and exempts biases and norms as
    FastNN does. With the other optimizers, `Classifier.compile(l2=...)` adds the L2
    term to the gradients.

    Args:
        options: the `Optimizer` options, with FastNN's names and constants.
        rate: learning rate or Keras schedule.

    Returns:
        (the Keras optimizer, the L2 factor to pass to `Classifier.compile`).
    """
    kind, names = _KINDS[options.optimizer]
    constants = {argument: getattr(options, name) for argument, name in names.items()}
    clipnorm = options.max_gradient_norm
    optimizer = kind(learning_rate=rate, global_clipnorm=clipnorm, **constants)
    exempt = [_WITHOUT_DECAY[name] for name in options.no_weight_decay_on]
    if options.optimizer == "adamweightdecay":
        exempt += [_WITHOUT_DECAY["norms"], _WITHOUT_DECAY["biases"]]
    if exempt:
        optimizer.exclude_from_weight_decay(var_names=exempt)
    return optimizer, 0.0 if "weight_decay" in names.values() else options.weight_decay


def adopt(optimizer, settings):
    """Returns a copy of the user's optimizer that belongs to the current strategy.

    Call it inside `strategy.scope()`. PLSC: set_optimizer.

    Args:
        optimizer: a Keras optimizer that is not built yet, with its own learning rate
            or schedule; or its name.
        settings: the `Settings`.

    Raises:
        ValueError: it is not a Keras optimizer, it is already built, or
            max_gradient_norm is also set.
    """
    optimizer, kind = optimizers.get(optimizer), type(optimizer).__name__
    if isinstance(optimizer, optimizers.LossScaleOptimizer):
        return optimizers.LossScaleOptimizer(
            adopt(optimizer.inner_optimizer, settings),
            initial_scale=optimizer.initial_scale,
            dynamic_growth_steps=optimizer.dynamic_growth_steps,
        )
    rule = "The optimizer must be new, not one that another model already uses"
    require(not optimizer.built, rule, "Create another one", optimizer=kind)
    bound = settings.optimizer.max_gradient_norm
    rule = "max_gradient_norm does not apply to an optimizer from Python"
    require(bound is None, rule, f"Set {kind}(..., global_clipnorm={bound}) instead")
    rate = private_apis.learning_rate_or_schedule(optimizer)
    if isinstance(rate, Variable):
        rate = float(rate.numpy())
    config = {**optimizer.get_config(), "learning_rate": rate}
    copy = type(optimizer).from_config(config)
    private_apis.copy_exclusions(optimizer, copy)
    return copy
