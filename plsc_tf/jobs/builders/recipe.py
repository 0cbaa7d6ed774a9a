"""Builds the model of a run from the settings."""

import functools

import keras
import tensorflow as tf
from absl import logging

from plsc_tf import backbones
from plsc_tf.backbones import precision
from plsc_tf.jobs.builders import heads, optimizers
from plsc_tf.jobs.parts import copy_to_strategy
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.collectives import Transport
from plsc_tf.requirements import require
from plsc_tf.training import weight_rules
from plsc_tf.training.auxiliary import Auxiliary, tap_of
from plsc_tf.training.average import Averaging
from plsc_tf.training.classifier import Classifier
from plsc_tf.training.loss_scale import LossScale
from plsc_tf.training.mixing import Mixing
from plsc_tf.training.weight_rules import WeightRule

# Precision options that change the loss scale, and all that set it.
_CHANGES = ("incr_every_n_steps", "decr_every_n_nan_or_inf", "incr_ratio", "decr_ratio")
LOSS_SCALE_OPTIONS = frozenset(
    ("loss_scale", "init_loss_scaling", "use_dynamic_loss_scaling", *_CHANGES)
)
# Defaults for face networks and the user's own networks.
EMBEDDING_SIZE, IMAGE_SIZE = 512, 112


def complete(settings: Settings, backbone=None) -> Settings:
    """Fills in options whose defaults depend on the network.

    Args:
        settings: the `Settings`.
        backbone: a network that replaces model_name, or None.

    Returns:
        The `Settings` with an image_shape. A network of the zoo also sets
        preprocessing_name and keeps its own embedding size; for any other network,
        emb_size is set.

    Raises:
        ValueError: model_name is unknown.
    """
    name, changes, size = settings.model.model_name, {}, IMAGE_SIZE
    entry = None if backbone is not None or "." in name else backbones.zoo_entry(name)
    if entry is not None:
        size = entry.image_size
        if settings.preprocessing.preprocessing_name is None:
            changes["preprocessing_name"] = entry.preprocessing
    elif settings.model.emb_size is None:
        changes["emb_size"] = EMBEDDING_SIZE
    if not settings.preprocessing.image_shape:
        changes["image_shape"] = (3, size, size)
    return settings.replace(**changes) if changes else settings


def build_model(settings, strategy, half=None, backbone=None, build=None):
    """Builds the uncompiled `Classifier`, backbone and head, under a strategy.

    Args:
        settings: the `Settings`.
        strategy: the `tf.distribute.Strategy`.
        half: the `backbones.precision.Precision` to train in; None for a model that
            only computes embeddings.
        backbone: a network that replaces model_name, see `Parts`; or None.
        build: function that takes a function without arguments and returns the network
            that it makes, such as one that checks it; or None.
    """
    settings = complete(settings, backbone)
    keras.utils.set_random_seed(settings.training.seed)
    with strategy.scope():
        make = functools.partial(build_backbone, settings, backbone)
        backbone = make() if build is None else build(make)
        backbone = precision.apply(backbone, half or precision.Precision())
        auxiliary = None
        if half is not None:
            if settings.model.freeze_layers:
                weight_rules.freeze(backbone, settings.model.freeze_layers)
            auxiliary = make_auxiliary(settings, backbone, half)
        head = heads.make_head(settings, training=half is not None)
        return Classifier(backbone, head, auxiliary=auxiliary)


def make_auxiliary(settings, backbone, half):
    """Returns the `Auxiliary` classifier, or None if the network has or needs none.

    Call it inside `strategy.scope()`.

    Args:
        settings: the `Settings`.
        backbone: the network, already converted to its precision.
        half: the `backbones.precision.Precision`.

    Raises:
        ValueError: there are too many classes for auxiliary logits.
    """
    weight = settings.model.aux_logits_weight
    if not weight or tap_of(backbone) is None:
        return None
    given = {"weight": weight, "label_smoothing": settings.head.label_smoothing}
    return Auxiliary(backbone, settings.dataset.num_classes, dtype=half.dtype, **given)


def check_accumulation(settings, replicas):
    """Checks that gradient accumulation leaves examples in every part of a batch.

    Args:
        settings: the `Settings` with the final global_batch_size.
        replicas: number of replicas.

    Raises:
        ValueError: gradient_accumulation_steps splits a batch into too many parts.
    """
    parts = settings.optimizer.gradient_accumulation_steps
    batch = settings.training.global_batch_size
    fits = parts == 1 or batch >= parts * replicas
    rule = f"gradient_accumulation_steps={parts} needs an image per part and replica"
    require(fits, rule, "Use fewer parts", images=batch, replicas=replicas)


def backbone_precision(settings):
    """Returns the `backbones.precision.Precision` of a training run."""
    given, planned = settings.precision, settings.performance.device_kind
    if given.use_fp16 and not (planned or tf.config.get_visible_devices("GPU")):
        advice = "On CPUs, float16 is up to 80 times slower than float32. Use use_bf16."
        logging.warning(advice)
    lists = given.parsed("amp_lists")
    return precision.Precision(given.dtype, given.keep_batchnorm_fp32, **lists)


def make_loss_scale(settings, optimizer=None):
    """Returns the `LossScale` of a training run, or None if it needs none.

    Call it inside `strategy.scope()`.

    Args:
        settings: the `Settings`.
        optimizer: the training's optimizer, or None. A
            `keras.optimizers.LossScaleOptimizer` scales the loss by itself.
    """
    given = settings.precision
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    # If the options set a loss scale too, `Classifier.compile` refuses both.
    if not given.use_fp16 or (scales and not settings.given & LOSS_SCALE_OPTIONS):
        return None
    fixed = max(given.loss_scale, 1.0)
    if fixed > 1 or not given.use_dynamic_loss_scaling:
        fixed = max(fixed, given.init_loss_scaling)
        return LossScale(fixed, dynamic=False) if fixed > 1 else None
    changes = {name: getattr(given, name) for name in _CHANGES}
    return LossScale(given.init_loss_scaling, **changes)


def compile_model(model, settings, schedule, own_optimizer=None, distillation=None):
    """Compiles a `Classifier` for training.

    Args:
        model: the `Classifier`.
        settings: the `Settings`.
        schedule: the learning rate, or its Keras schedule.
        own_optimizer: an optimizer made in Python, which replaces that of the settings.
        distillation: the `Distillation` of a teacher, or None.
    """
    options, average = settings.optimizer, settings.optimizer.ema_decay
    with model.strategy.scope():
        if own_optimizer is not None:
            optimizer, l2 = optimizers.adopt(own_optimizer, settings), 0.0
        else:
            optimizer, l2 = optimizers.build(options, schedule)
        loss_scale = make_loss_scale(settings, optimizer)
    metrics = ("accuracy", "top5_accuracy") if settings.head.calc_acc else ()
    compiled, mixing = settings.performance.jit_compile, None
    images, head, cluster = settings.preprocessing, settings.head, settings.cluster
    if images.mixup or images.cutmix:
        mixing = Mixing(images.mixup, images.cutmix, settings.training.seed)
    bucket_bytes = int(cluster.gradient_bucket_mb * 1e6)
    model.compile(
        optimizer,
        metrics=metrics,
        l2=l2,
        loss_scale=loss_scale,
        transport=Transport(bucket_bytes, cluster.gradient_dtype),
        gradient_accumulation_steps=options.gradient_accumulation_steps,
        head_slot_dtype=head.head_slot_dtype,
        averaging=Averaging(average, options.ema_in_use) if average else None,
        steps_per_execution=settings.performance.steps_per_execution,
        head_rule=WeightRule(head.head_learning_rate_factor, head.head_weight_decay),
        rate_factors=settings.learning_rate.parsed("learning_rate_factors"),
        weight_decay_on=options.parsed("weight_decay_on"),
        mixing=mixing,
        distillation=distillation,
        jit_compile={"true": True, "false": False}.get(compiled, compiled),
        recompute=settings.performance.recompute,
    )


def build_backbone(settings, backbone=None):
    """Builds a network of the library by name, or the user's own network.

    Args:
        settings: the `Settings`; model_name may be the dotted path of a network.
        backbone: the user's own network, see `Parts`; or None.

    Raises:
        ValueError: options of the library's networks are set for the user's own.
    """
    model = settings.model
    shape = (*settings.preprocessing.image_size, 3)
    arguments = {"embedding_size": model.emb_size, "image_shape": shape}
    if backbone is None and "." in model.model_name:
        backbone = model.model_name
    if backbone is not None:
        given = model.dropout is not None, model.model_options
        options = "dropout, model_options and synchronized_batch_norm"
        rule = f"{options} apply only to the library's networks, not to your own"
        fits = not any((*given, model.synchronized_batch_norm))
        require(fits, rule, "Leave them out")
        return backbones.from_user(copy_to_strategy(backbone), **arguments)
    arguments["dropout"] = model.dropout
    arguments["synchronized_batch_norm"] = model.synchronized_batch_norm
    options = model.parsed("model_options")
    return backbones.build(model.model_name, **arguments, **options)
