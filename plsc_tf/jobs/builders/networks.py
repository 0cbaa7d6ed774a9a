"""What a network decides about a run, and what is done to it for training."""

from plsc_tf import backbones
from plsc_tf.training import freezing
from plsc_tf.training.auxiliary import Auxiliary, has_auxiliary_logits

# Of face networks and of the user's own, unless the flags say something.
EMBEDDING_SIZE = 512
IMAGE_SIZE = 112


def completed(settings, own=None):
    """The settings with the network's word on what the flags leave open.

    Args:
        settings: the `Settings`.
        own: a network that takes the place of model_name, or None.

    Returns:
        the `Settings` with an image_shape; with an emb_size unless a network of the zoo
        shall keep its own; with such a network's preprocessing_name.

    Raises:
        ValueError: there is no network of this name.
    """
    name = settings.model.model_name
    entry = None
    if own is None and "." not in name:
        entry = backbones.zoo_entry(name)
    changes = {}
    if not settings.preprocessing.image_shape:
        size = IMAGE_SIZE if entry is None else entry.image_size
        changes["image_shape"] = (3, size, size)
    if settings.model.emb_size is None and entry is None:
        changes["emb_size"] = EMBEDDING_SIZE
    if settings.preprocessing.preprocessing_name is None and entry is not None:
        changes["preprocessing_name"] = entry.preprocessing
    return settings.replace(**changes) if changes else settings


def prepared(settings, backbone, half):
    """Freezes layers and makes the auxiliary classifier; call it under the strategy.

    Args:
        settings: the `Settings`.
        backbone: the network in its precision.
        half: the `backbones.precision.Precision`.

    Returns:
        what `auxiliary` returns.

    Raises:
        ValueError: freeze_layers names no layer, or there are too many classes for
            auxiliary logits.
    """
    if settings.model.freeze_layers:
        freezing.freeze(backbone, settings.model.freeze_layers)
    return auxiliary(settings, backbone, half)


def auxiliary(settings, backbone, half):
    """Makes the auxiliary classifier; call it under the strategy.

    Args:
        settings: the `Settings`.
        backbone: the network in its precision.
        half: the `backbones.precision.Precision`.

    Returns:
        the `Auxiliary`, or None where the network has none or the flags want none.

    Raises:
        ValueError: there are too many classes for auxiliary logits.
    """
    model = settings.model
    if not model.aux_logits_weight or not has_auxiliary_logits(backbone):
        return None
    return Auxiliary(
        backbone,
        settings.dataset.num_classes,
        weight=model.aux_logits_weight,
        label_smoothing=settings.head.label_smoothing,
        precision=half,
    )
