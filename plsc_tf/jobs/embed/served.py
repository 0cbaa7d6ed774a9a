"""An exported model as a function of pictures."""

import json

import numpy as np
import tensorflow as tf

from plsc_tf.data import preprocessing
from plsc_tf.storage import files

_CARD = "assets.extra/model_card.json"


class Served:
    """A SavedModel that `plsc_tf` exported, by its signature `images`.

    Args:
        path: folder of the versions, the largest of which is taken, or of one.
        batch_size: pictures per call.

    Attributes:
        path: folder of the version.
        framing: the `Preprocessing` that frames pictures for it.
        normalized: whether its embeddings have length 1.

    Raises:
        FileNotFoundError: there is no exported model.
        ValueError: it is one of another kind.
    """

    def __init__(self, path, batch_size):
        self.path = _version(path)
        card = _read_card(self.path)
        self.normalized = bool(card.get("normalize"))
        self.framing = _framing(card, self.path)
        self._batch_size = batch_size
        self._model = tf.saved_model.load(self.path)
        self._embed = self._model.signatures["images"]

    def embed(self, pixels):
        """Embeds uint8 [n, height, width, 3]: float32 [n, embedding_size]."""
        parts = []
        for start in range(0, len(pixels), self._batch_size):
            batch = tf.constant(pixels[start : start + self._batch_size], tf.float32)
            parts.append(self._embed(images=batch)["embedding"].numpy())
        return np.concatenate(parts)


def _framing(card, path):
    """How the model's `serving_default` frames pictures."""
    name = card.get("preprocessing", "resize")
    if name == "custom":
        raise ValueError(
            f"{path} frames pictures by code of its own, which its card does not name. "
            "Embed by the checkpoint, checkpoint_dir."
        )
    name = "face" if name == "resize" else name
    return preprocessing.build(name, tuple(card["image_size"]), augmentation=None)


def _version(path):
    path = path.rstrip("/") or path
    if files.exists(files.join(path, "saved_model.pb")):
        return path
    if not files.is_dir(path):
        raise FileNotFoundError(f"There is no folder saved_model={path!r}.")
    numbers = [int(name) for name in files.list_dir(path) if name.isdecimal()]
    if not numbers:
        raise FileNotFoundError(
            f"saved_model must be the folder of an exported model: versions 1, 2, ..., "
            f"or one of them with saved_model.pb in it. Received: {path!r}."
        )
    return files.join(path, str(max(numbers)))


def _read_card(path):
    card_path = files.join(path, _CARD)
    if not files.exists(card_path):
        raise ValueError(
            f"{path} was not exported by plsc_tf: {_CARD} is missing, which says what "
            "pictures it expects."
        )
    card = json.loads(files.read(card_path))
    if "image_size" not in card:
        raise ValueError(f"{card_path} does not say image_size.")
    return card
