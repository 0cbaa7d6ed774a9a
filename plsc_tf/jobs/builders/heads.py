"""Builds a head and its loss from the options of the head."""

import dataclasses

from plsc_tf import dotted_paths
from plsc_tf.flags.head import FIELDS
from plsc_tf.heads import adaptive_margins, heads, margins

_CONSTANTS = vars(margins) | vars(adaptive_margins)
LOSSES = {name: _CONSTANTS[name.upper()] for name in FIELDS}


def make_loss(head) -> margins.MarginLoss:
    """Returns the `MarginLoss` that the options of the head describe.

    Args:
        head: the `Head` options; a margin that is None means the loss's own default.
    """
    loss = LOSSES.get(head.loss)
    loss = dataclasses.replace(loss, **head.fields()) if loss else load_loss(head.loss)
    threshold = head.interclass_filtering_threshold
    if threshold and head.loss != "softmax":
        return margins.InterclassFilter(loss, threshold)
    return loss


def load_loss(path):
    """Returns the `MarginLoss` at a dotted path.

    Args:
        path: dotted path of a `MarginLoss`, or of a class or function that returns one
            when called without arguments.

    Raises:
        ImportError: the path cannot be imported.
        TypeError: the object at the path is not a loss and does not return one.
    """
    loss = dotted_paths.load(path, "loss")
    loss = loss() if callable(loss) else loss
    if not isinstance(loss, margins.MarginLoss):
        raise TypeError(
            "A loss must be a plsc_tf.MarginLoss, or a class or function that returns "
            f"one without arguments. Received: loss_type={path}, which gives {loss!r}."
        )
    return loss


def make_head(settings, training=True):
    """Returns the head that the settings describe.

    Args:
        settings: the `Settings`.
        training: False omits the options that affect only training, for a model that
            only computes embeddings and may have a different number of classes.
    """
    given = settings.head
    # An option is named like its argument, some with head_ before it.
    names = ["scale", "sub_centers"]
    if training:
        names += ["label_smoothing", "head_initial_bias", "head_logits_mb"]
        names += ["head_initializer", "head_dtype"]
    if training and given.sharded:
        names += ["sample_rate", "head_tile_rows", "head_weight_dtype"]
    options = {name.removeprefix("head_"): getattr(given, name) for name in names}
    kind = heads.ShardedHead if given.sharded else heads.DenseHead
    classes, seed = settings.dataset.num_classes, settings.training.seed
    return kind(classes, loss=make_loss(given), seed=seed, **options)
