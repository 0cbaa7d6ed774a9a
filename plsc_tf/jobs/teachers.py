"""Loads the teacher of a run: a checkpoint, an export or another library's file."""

import functools

import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.checkpoints import catalog, importers, manifest
from plsc_tf.heads.heads import ShardedHead
from plsc_tf.jobs import origins
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.trained import load_model
from plsc_tf.options.settings import Settings
from plsc_tf.requirements import require
from plsc_tf.serving import versions
from plsc_tf.storage import files, transfer
from plsc_tf.training import model_config
from plsc_tf.training.classifier import Classifier
from plsc_tf.training.distillation import Distillation, Teacher


def load_distillation(options, trained):
    """Returns the `Distillation` of a run, or None without a teacher.

    Args:
        options: the `Distillation` options.
        trained: the `Classifier` to train.

    Raises:
        FileNotFoundError: the teacher's folder contains no network.
        ImportError: a package to read an ONNX file is missing.
        ValueError: the teacher does not exist, or its network is unknown.
    """
    if not (path := options.teacher):
        return None
    files.prepare(path)
    folder = files.is_dir(path)
    rule = "teacher must be a checkpoint, an export or an ONNX file"
    require(folder or files.exists(path), rule, teacher=repr(path))
    exports = origins.find_exports(path) if folder else {}
    like = trained.head if options.distill == "logits" else None
    with trained.strategy.scope():
        if exports:
            teacher = _exported(exports[max(exports)])
        elif folder:
            teacher = _of_checkpoint(catalog.resolve(path), like)
        else:
            teacher = _of_model(_imported(path))
    weight = options.distill_weight or (50.0 if like is None else 1.0)
    return Distillation(teacher, options.distill, weight, options.distill_temperature)


def _of_checkpoint(path, like):
    """Returns the `Teacher` in a checkpoint, with the tiles of the head `like`."""
    if like is None:
        return _of_model(load_model(path, with_head=False))
    content = manifest.read(path)
    classes, stored = content["state"]["num_classes"], content["state"].get("head")
    rule, wanted = f"{path} must have the classes of the student", like.num_classes
    require(classes == wanted, rule, teacher=classes, student=wanted)
    described = stored and stored | {"kind": type(like).__name__}
    head = described and model_config.make_head(classes, described)
    rule = f"{path} must have a loss of the library, and one row of weights per class"
    require(content["arrays"] and head and head.sub_centers == 1, rule)
    head.tile_rows = like.layout.rows_per_tile
    return _of_model(load_model(path, head=head))._replace(head=head)


def _of_model(model):
    """Returns the `Teacher` in a `Classifier`."""

    def embed(images):
        with in_float32(model.backbone):
            return model(images, training=False)

    return Teacher(embed, model.backbone.input_shape[1:], model.embedding_size)


def _imported(path):
    """Returns a `Classifier` with a network from another library's file."""
    source = importers.read(path)
    settings = Settings.from_values(**importers.network(source))
    make = functools.partial(recipe.build_backbone, recipe.complete(settings))
    backbone, _ = importers.build(source, make)
    # Embeddings do not depend on the head, so the smallest possible one is enough.
    head = ShardedHead(tf.distribute.get_strategy().num_replicas_in_sync)
    return Classifier(backbone, head)


def _exported(path):
    """Returns the `Teacher` in a SavedModel."""
    card, copy = versions.read_card(path), transfer.LocalFolder(path)
    model = tf.saved_model.load(copy.downloaded())

    def embed(images):
        return model.signatures["images"](images=images)["embedding"]

    return Teacher(embed, (*card["image_size"], 3), card["embedding_size"])
