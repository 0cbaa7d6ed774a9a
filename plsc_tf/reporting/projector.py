"""Exports embeddings with their images to TensorBoard's projector."""

import io
import json
import re

import numpy as np
from absl import logging
from PIL import Image

from plsc_tf.data.images import encode
from plsc_tf.evaluation import bootstrap
from plsc_tf.storage import files

PICTURES = 1000
# The projector needs all images in one sheet of at most 8192 × 8192 pixels.
SPRITE_SIDE = 8192
SMALLEST, LARGEST = 16, 100


def write(folder, name, embeddings, labels, pictures):
    """Writes the files that TensorBoard's projector shows.

    Args:
        folder: TensorBoard's log folder.
        name: any name for the set of embeddings.
        embeddings: `[N, emb]`.
        labels: N strings without tabs or newlines.
        pictures: uint8 `[N, h, w, 3]`.
    """
    per_row = int(np.ceil(np.sqrt(len(pictures))))
    side = int(np.clip(SPRITE_SIDE // per_row, SMALLEST, LARGEST))
    table = io.BytesIO()
    np.savetxt(table, embeddings, fmt="%.6g", delimiter="\t")
    # The text format of protocol buffers escapes strings like JSON.
    quoted = json.dumps(name, ensure_ascii=False)
    file = re.sub(r"[^\w.-]", "_", name)
    parts = {
        f"{file}.tsv": table.getvalue(),
        f"{file}_labels.tsv": "".join(f"{label}\n" for label in labels).encode(),
        f"{file}_sprite.png": _sprite(pictures, per_row, side),
        "projector_config.pbtxt": (
            f'embeddings {{\n  tensor_name: {quoted}\n  tensor_path: "{file}.tsv"\n'
            f'  metadata_path: "{file}_labels.tsv"\n  sprite {{\n'
            f'    image_path: "{file}_sprite.png"\n    single_image_dim: {side}\n'
            f"    single_image_dim: {side}\n  }}\n}}\n"
        ).encode(),
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
    rows = np.arange(min(len(pairs.images), PICTURES))
    pictures = pairs.decoded_rows(rows, model.image_size)
    left, right = pairs.left[pairs.same], pairs.right[pairs.same]
    people = bootstrap.linked(len(pairs.images), left, right)
    return model.embed(pictures), [f"{people[row]}" for row in rows], pictures


def of_batch(model, batches):
    """Embeds the first batch's training images.

    Args:
        model: the `Classifier`; all workers must call this.
        batches: the training data.

    Returns:
        (embeddings, labels, images).
    """
    images, labels, *_ = next(iter(batches.epoch(0)))
    pictures = np.clip(np.rint(np.asarray(images, np.float32)), 0, 255)
    pictures = pictures[:PICTURES].astype(np.uint8)
    labels = np.asarray(labels)[:PICTURES]
    return model.embed(pictures), [f"{label}" for label in labels], pictures


def _sprite(pictures, per_row, side):
    sheet = Image.new("RGB", (per_row * side, per_row * side), "white")
    for number, picture in enumerate(pictures):
        small = Image.fromarray(picture).resize((side, side), Image.Resampling.BILINEAR)
        sheet.paste(small, (number % per_row * side, number // per_row * side))
    return encode(sheet)
