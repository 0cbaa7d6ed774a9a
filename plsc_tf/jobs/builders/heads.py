"""From the head flags to a head and its loss."""

import dataclasses

from plsc_tf import dotted_paths
from plsc_tf.flags.head import SYMBOLS
from plsc_tf.heads import adaptive_margins, margins
from plsc_tf.heads.heads import DenseHead, ShardedHead

LOSSES = {
    "softmax": margins.SOFTMAX,
    "arcface": margins.ARCFACE,
    "cosface": margins.COSFACE,
    "sphereface": margins.SPHEREFACE,
    "adaface": adaptive_margins.ADAFACE,
    "curricularface": adaptive_margins.CURRICULARFACE,
    "magface": adaptive_margins.MAGFACE,
}


def make_loss(head) -> margins.MarginLoss:
    """The `MarginLoss` that the head flags describe.

    Args:
        head: the `Head` flags; margins that are None are the loss's own.
    """
    loss, options = LOSSES.get(head.loss), head.margins()
    if loss is None:
        loss = load_loss(head.loss)
    elif isinstance(loss, margins.Margins):
        options = {SYMBOLS[name]: value for name, value in options.items()}
        if head.loss != "softmax":
            options["gradient"] = head.margin_gradient
        loss = dataclasses.replace(loss, **options)
    elif head.loss == "magface":
        norms, bounds = head.magface_norms, head.magface_margins
        loss = adaptive_margins.MagFace(*norms, *bounds, head.magface_lambda_g)
    else:
        constants = {"m": options["margin"]} if options else {}
        if head.loss == "adaface":
            constants |= {"h": head.adaface_h, "t_alpha": head.adaface_t_alpha}
        loss = dataclasses.replace(loss, **constants)
    threshold = head.interclass_filtering_threshold
    if threshold and head.loss != "softmax":
        return margins.InterclassFilter(loss, threshold)
    return loss


def load_loss(path):
    """The `MarginLoss` at a dotted path.

    Args:
        path: of a `MarginLoss`, or of a class or function that makes one and is called
            without arguments.

    Raises:
        ImportError: the path leads nowhere.
        TypeError: what is there is no loss.
    """
    loss = dotted_paths.load(path, "loss")
    loss = loss() if callable(loss) else loss
    if not isinstance(loss, margins.MarginLoss):
        raise TypeError(
            "A loss must be a plsc_tf.MarginLoss, or a class or function that makes "
            f"one without arguments. Received: loss_type={path}, which gives {loss!r}."
        )
    return loss


def make_head(settings, training=True):
    """The head that the settings describe.

    Args:
        settings: the `Settings`.
        training: False leaves out how it is trained, which no embedding depends on,
            for a head that may have other numbers of classes.
    """
    given = settings.head
    options = {
        "loss": make_loss(given),
        "scale": given.scale,
        "sub_centers": given.sub_centers,
        "seed": settings.training.seed,
    }
    if training:
        options |= {
            "initial_deviation": given.head_initial_deviation,
            "initializer": given.head_initializer or None,
            "initial_bias": given.head_initial_bias,
            "label_smoothing": given.label_smoothing,
            "logits_mb": given.head_logits_mb,
            "dtype": given.head_dtype,
        }
    if not given.sharded:
        return DenseHead(settings.dataset.num_classes, **options)
    if training:
        options |= {
            "sample_rate": given.sample_rate,
            "tile_rows": given.head_tile_rows,
        }
    return ShardedHead(settings.dataset.num_classes, **options)
