"""Exported models, for commands that embed images with them."""

import numpy as np
import tensorflow as tf

from plsc_tf.data import preprocessing
from plsc_tf.evaluation import quality
from plsc_tf.evaluation.verification import lengths, unit
from plsc_tf.requirements import require
from plsc_tf.serving import versions
from plsc_tf.storage import transfer


class ExportedModel:
    """The newest version of a SavedModel exported by `plsc_tf`.

    Args:
        folder: folder with versions 1, 2, ..., or with saved_model.pb.
        rates: whether the quality of images is needed.

    Attributes:
        path: path of the version.
        frame: the `Preprocessing` of its images.
        rates: whether it knows the quality of images.

    Raises:
        FileNotFoundError: there is no version.
        ValueError: it has no model card, its own preprocessing, or no quality although
            it is needed.
    """

    def __init__(self, folder: str, rates: bool = False):
        folders = versions.find_models(folder, "saved_model")
        if not folders:
            raise FileNotFoundError(
                "saved_model must be a folder with versions 1, 2, ... of an exported "
                f"model, or with saved_model.pb. Received: {folder!r}."
            )
        self.path = path = folders[max(folders)]
        card = versions.read_card(path)
        name = card.get("preprocessing", "resize")
        rule = f"plsc_tf.embed cannot apply the preprocessing (prepare=) of {path}"
        require(name != "custom", rule, "Call its signature serving_default instead")
        self._percentiles = card.get("quality", {}).get("norm_percentiles")
        self.rates = bool(self._percentiles)
        rule = f"{path} does not know the quality of images"
        advice = f"Export it with a verification set of {quality.MIN_IMAGES} images or "
        require(self.rates or not rates, rule, f"{advice}more: --val_targets=lfw")
        name = "face" if name == "resize" else name
        self.frame = preprocessing.build(name, tuple(card["image_size"]), None)
        self._normalize = self.rates and card["normalize"]
        local = transfer.LocalFolder(path)
        self._model = tf.saved_model.load(local.downloaded())

    def embed(self, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns embeddings `[n, size]` and their norms before normalization, `[n]`.

        Args:
            pixels: uint8 `[n, height, width, 3]`, framed.
        """
        images = tf.cast(pixels, tf.float32)
        if self._normalize:
            raw = self._model.raw(images).numpy()
            return unit(raw), lengths(raw)
        rows = self._model.signatures["images"](images=images)["embedding"].numpy()
        return rows, lengths(rows)

    def rate(self, norms: np.ndarray) -> np.ndarray:
        """Returns the quality of images, in [0, 1], from the norms `embed` returned."""
        return quality.rate(norms, self._percentiles)

    def quality_of(self, image: np.ndarray) -> float:
        """Returns the quality of an image, uint8 `[height, width, 3]` of any size."""
        _, norms = self.embed(self.frame.evaluate(image)[np.newaxis])
        return round(self.rate(norms).item(), 4)
