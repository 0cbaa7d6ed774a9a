"""The model of a checkpoint, for inference in another process."""

import keras
import tensorflow as tf
from absl import logging

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.heads import margins
from plsc_tf.heads.sharded import ShardedHead
from plsc_tf.jobs import trained
from plsc_tf.jobs.parts import Parts, made_here
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.strategy import strategy as make_strategy
from plsc_tf.storage import files
from plsc_tf.training import model_config, state
from plsc_tf.training.classifier import Classifier


def load_model(folder, *, backbone=None, head=None):
    """Builds the model of a checkpoint and loads its weights; it is not compiled.

    Example:
        model = plsc_tf.load_model("runs/notebook")
        embeddings = model.embed(images)

    Call it inside `strategy.scope()` for devices of your own choice; else it takes
    every GPU of this machine, or one CPU device. They need not be as many as in the
    training. Where the training averaged its weights, the averages are loaded, unless
    it ran with ema_in_use=false.

    Args:
        folder: a checkpoint, or a training's folder, of which the newest checkpoint is
            taken.
        backbone: the network, where the checkpoint does not hold it because it has
            layers of your own: a Keras model, or a function that makes one.
        head: a new `ShardedHead` or `DenseHead` of as many classes, where the loss is
            one of your own. Embeddings do not depend on it.

    Returns:
        the `Classifier`.

    Raises:
        FileNotFoundError: there is no checkpoint.
        ValueError: it does not hold its network, or another one than `backbone`.
    """
    files.prepare(str(folder))
    path = catalog.resolve(str(folder))
    content = manifest.read(path)
    stored, with_head = content["state"], bool(content["arrays"])
    strategy = tf.distribute.get_strategy()
    if not tf.distribute.has_strategy():
        strategy = make_strategy()
    flags = stored.get("flags", {})
    if not stored.get("network") and "model_name" in flags:
        # Of an earlier version: its options say how to make it.
        settings = Settings.from_values(checkpoint_dir=path)
        parts = Parts(backbone=backbone)
        model = trained.load(settings, with_head, parts, strategy).model
    else:
        with strategy.scope():
            network = _network(path, stored, backbone)
            # Without class rows in the checkpoint the smallest head will do.
            classes = stored["num_classes"]
            if not with_head:
                classes = strategy.num_replicas_in_sync
            model = Classifier(network, head or _head(path, content, classes))
        state.restore_weights(path, model, with_head)
        if flags.get("ema_in_use", True):
            state.restore_averages(path, model, with_head)
    state.restore_head_state(model, stored)
    return model


def _network(path, stored, backbone):
    if isinstance(backbone, keras.Model):
        return made_here(backbone)
    if backbone is not None:
        return backbone()
    reason = "it has layers of your own" if "network" in stored else "it is older"
    if stored.get("network"):
        try:
            return model_config.make_network(stored["network"])
        except ValueError as error:
            reason = str(error).partition("\n")[0]
    raise ValueError(
        f"Checkpoint {path} does not hold its network ({reason}). Pass the one that "
        "was trained, or a function that makes it: plsc_tf.load_model(folder, "
        "backbone=...)."
    )


def _head(path, content, classes):
    stored = content["state"]
    head = stored.get("head") and model_config.make_head(classes, stored["head"])
    if head:
        return head
    softmax = "bias" in content["arrays"]
    logging.warning(
        "Checkpoint %s does not hold the loss of its head; %s stands in for it. "
        "Embeddings do not depend on it; pass head= to evaluate the loss.",
        path,
        "plain softmax" if softmax else "ARCFACE",
    )
    return ShardedHead(classes, loss=margins.SOFTMAX if softmax else margins.ARCFACE)
