"""Exports embeddings with their images to TensorBoard's projector."""

import io

import numpy as np
from absl import logging
from google.protobuf import text_format
from PIL import Image
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig

from plsc_tf.data.images import encode
from plsc_tf.evaluation import bootstrap
from plsc_tf.storage import files

MAX_IMAGES = 1000
# The projector needs all images in one sheet of at most 8192 × 8192 pixels.
SPRITE_SIDE = 8192
SMALLEST, LARGEST = 16, 100


def write(folder, name, embeddings, labels, images):
    """Writes the files that TensorBoard's projector shows.

    Args:
        folder: TensorBoard's log folder.
        name: any name for the set of embeddings.
        embeddings: `[N, emb]`.
        labels: N strings without tabs or newlines.
        images: uint8 `[N, h, w, 3]`.
    """
    per_row = int(np.ceil(np.sqrt(len(images))))
    largest = min(LARGEST, max(images.shape[1:3]))
    side = max(SMALLEST, min(SPRITE_SIDE // per_row, largest))
    table = io.BytesIO()
    np.savetxt(table, embeddings, fmt="%.6g", delimiter="\t")
    config = ProjectorConfig()
    config.embeddings.add(
        tensor_name=name,
        tensor_path="embeddings.tsv",
        metadata_path="labels.tsv",
        sprite={"image_path": "sprite.png", "single_image_dim": [side, side]},
    )
    parts = {
        "embeddings.tsv": table.getvalue(),
        "labels.tsv": "".join(f"{label}\n" for label in labels).encode(),
        "sprite.png": _sprite(images, per_row, side),
        "projector_config.pbtxt": text_format.MessageToBytes(config),
    }
    files.make_dirs(folder)
    for part, content in parts.items():
        files.replace(files.join(folder, part), content)
    logging.info("%d embeddings for TensorBoard's projector: %s", len(labels), folder)


def of_pairs(model, pairs):
    """Embeds the first images of a verification set.

    Args:
        model: the `Classifier`; all workers must call this.
        pairs: `Pairs`.

    Returns:
        (embeddings, labels, images).
    """
    rows = np.arange(min(len(pairs.images), MAX_IMAGES))
    images = pairs.decoded(model.image_size, rows)
    left, right = pairs.left[pairs.same], pairs.right[pairs.same]
    people = bootstrap.linked(len(pairs.images), left, right)
    return model.embed(images), [f"{people[row]}" for row in rows], images


def _sprite(images, per_row, side):
    sheet = Image.new("RGB", (per_row * side, per_row * side), "white")
    for number, image in enumerate(images):
        small = Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR)
        sheet.paste(small, (number % per_row * side, number // per_row * side))
    return encode(sheet)
