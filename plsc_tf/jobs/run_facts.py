"""Logs a description of a run, and the options that have no effect on it."""

import tensorflow as tf
from absl import logging

from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.source import IndexedSource
from plsc_tf.heads.heads import describe
from plsc_tf.options import effects


def log_run(plan, model, batches, pairs, parts):
    """Logs a description of the run in a few lines, and its options without effect.

    Args:
        plan: the `plsc_tf.jobs.run_plan.Plan`.
        model: the compiled `Classifier`; it must have joined its group.
        batches: the training `Batches`.
        pairs: the verification sets, `{name: Pairs}`.
        parts: the `Parts` from Python.
    """
    settings = plan.settings
    _log_idle_options(settings, batches, pairs, model, parts)
    logging.info(
        f"{settings.model.model_name}: {model.backbone.count_params():,} parameters, "
        f"{settings.precision.dtype}, {model.embedding_size}-dimensional embeddings"
    )
    logging.info("loss_type=%s. %s", settings.head.loss_type, describe(model.head))
    if parts.given():
        logging.info("%s", parts.remark())
    images = f"{batches.num_examples:,}" if batches.num_examples else "?"
    logging.info(
        f"{settings.dataset.dataset_name}: {images} images; "
        f"{model.strategy.num_replicas_in_sync} replicas, "
        f"{settings.training.global_batch_size} images per step, {plan.steps_per_epoch}"
        f" steps per epoch, {plan.total_steps} in all; learning rate {plan.rate:.4g}"
    )


def _log_idle_options(settings, batches, pairs, model, parts):
    """Logs the options that have no effect on this data set, model or machine."""
    source, own = batches.source, parts.source is not None
    # A source from Python takes only its number of examples from the options.
    used_fields = frozenset({"num_examples"}) if own else source.used_fields
    several = model.strategy.num_replicas_in_sync > 1
    on_gpus = bool(tf.config.get_visible_devices("GPU"))
    random = batches.options.augmentation or Augmentation()
    colors = (random.color_jitter, random.hue, random.brightness, random.contrast)
    facts = {
        **effects.data_facts(used_fields, counted=source.num_examples is not None),
        "files": "num_examples" not in (used_fields or ())
        or any(one.path for one in pairs.values()),
        "streamed": not isinstance(source, IndexedSource),
        "own_source": own,
        "recolors": any((*colors, random.saturation)),
        "several_replicas": several,
        "buckets": several and (on_gpus or model.trainer.group.size > 1),
        "auxiliary_logits": model.auxiliary is not None,
        "own_optimizer": parts.optimizer is not None,
    }
    effects.log_unused(settings, facts)
