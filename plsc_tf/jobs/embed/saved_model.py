"""An exported model as a function of images."""

import json

import numpy as np
import tensorflow as tf

from plsc_tf.data import preprocessing
from plsc_tf.serving import versions
from plsc_tf.storage import files

_CARD = "assets.extra/model_card.json"


class ExportedModel:
    """A SavedModel that `plsc_tf` exported, by its signature `images`.

    Args:
        path: folder of the versions, the largest of which is taken, or of one.
        batch_size: images per call.

    Attributes:
        path: folder of the version.
        framing: the `Preprocessing` that frames images for it.
        normalized: whether its embeddings have length 1.

    Raises:
        FileNotFoundError: there is no exported model.
        ValueError: it is one of another kind.
    """

    def __init__(self, path: str, batch_size: int):
        folders = versions.find_models(path, "saved_model")
        if not folders:
            raise FileNotFoundError(
                "saved_model must be the folder of an exported model: versions 1, 2, "
                f"..., or one with saved_model.pb in it. Received: {path!r}."
            )
        self.path = folders[max(folders)]
        card = _read_card(self.path)
        self.normalized = bool(card.get("normalize"))
        name = card.get("preprocessing", "resize")
        if name == "custom":
            raise ValueError(
                f"{self.path} frames images by a function that its card does not name. "
                "Embed by the checkpoint, checkpoint_dir."
            )
        self.framing = preprocessing.build(
            "face" if name == "resize" else name,
            tuple(card["image_size"]),
            augmentation=None,
        )
        self._batch_size = batch_size
        self._model = tf.saved_model.load(self.path)

    def embed(self, pixels: np.ndarray) -> np.ndarray:
        """Embeds uint8 [n, height, width, 3]: float32 [n, embedding_size]."""
        parts, embed = [], self._model.signatures["images"]
        for start in range(0, len(pixels), self._batch_size):
            batch = tf.constant(pixels[start : start + self._batch_size], tf.float32)
            parts.append(embed(images=batch)["embedding"].numpy())
        return np.concatenate(parts)


def _read_card(path):
    card_path = files.join(path, _CARD)
    if not files.exists(card_path):
        raise ValueError(
            f"{path} was not exported by plsc_tf: it lacks {_CARD}, which describes "
            "the images it expects."
        )
    card = json.loads(files.read(card_path))
    if "image_size" not in card:
        raise ValueError(f"{card_path} lacks image_size.")
    return card
