"""What a run finds out about itself, for the options that depend on it."""

import tensorflow as tf

from plsc_tf.data.augmentation import Augmentation
from plsc_tf.data.source import IndexedSource
from plsc_tf.options import effects


def tell(settings, batches, pairs, model, parts):
    """Logs the options that have no effect on this data set, model or machine.

    Args:
        settings: the `Settings` of the run.
        batches: the training `Batches`.
        pairs: the verification sets, `{name: Pairs}`.
        model: the `Classifier`, which has joined its group.
        parts: the `Parts` that are given in Python.
    """
    effects.tell(
        settings,
        {
            **_of_data(batches, pairs, parts),
            **_of_augmentation(batches.options.augmentation or Augmentation()),
            **_of_devices(model),
            "auxiliary_logits": model.auxiliary is not None,
            "own_optimizer": parts.optimizer is not None,
        },
    )


def _of_data(batches, pairs, parts):
    source, own = batches.source, parts.source is not None
    # num_sample_per_epoch may be what has counted a reader's examples.
    heeds = frozenset({"num_examples"}) if own else source.heeds
    return {
        **effects.of_data(heeds, counted=source.num_examples is not None),
        "files": "num_examples" not in (heeds or ())
        or any(one.path for one in pairs.values()),
        "streamed": not isinstance(source, IndexedSource),
        "own_source": own,
    }


def _of_augmentation(given):
    colors = (given.color_jitter, given.hue, given.brightness, given.contrast)
    return {
        "rotates": given.rotate > 0,
        "crops": given.crop_scale is not None,
        "recolors": any((*colors, given.saturation)),
        "erases": given.cutout > 0,
    }


def _of_devices(model):
    several = model.strategy.num_replicas_in_sync > 1
    on_gpus = bool(tf.config.get_visible_devices("GPU"))
    return {
        "several_replicas": several,
        "buckets": several and (on_gpus or model.trainer.group.size > 1),
    }
