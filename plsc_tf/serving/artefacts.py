"""What an export consists of: the SavedModel, loaded again, and files made from it."""

import os

import numpy as np
import tensorflow as tf

from plsc_tf.serving.formats import onnx, tflite
from plsc_tf.storage import files

SAVED_MODEL = "saved_model"
FILES = {
    "tflite": "embedding.tflite",
    "tflite_float16": "embedding_float16.tflite",
    "tflite_int8": "embedding_int8.tflite",
    "onnx": "embedding.onnx",
}
FORMATS = (SAVED_MODEL, *FILES)


def check_formats(formats, calibration):
    """Finds early what would stop a conversion.

    Raises:
        ValueError: an unknown format, or no pictures to calibrate with.
        ImportError: names the extra that is missing.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ValueError(
            f"formats must be of {', '.join(FORMATS)}. Received: {', '.join(unknown)}."
        )
    if SAVED_MODEL not in formats:
        raise ValueError(
            "The other formats lie inside the SavedModel's folder: formats must name "
            f"saved_model too. Received: {', '.join(formats)}."
        )
    if "tflite_int8" in formats and (calibration is None or not len(calibration)):
        raise ValueError(
            "tflite_int8 needs calibration pictures, uint8 [n, height, width, 3]: some "
            "like those to come. Received: none."
        )
    if "onnx" in formats:
        onnx.check_installed()


class Artefacts:
    """Loads a SavedModel and writes the other formats into its `assets.extra/`.

    Called outside of every strategy's scope.

    Args:
        folder: of the SavedModel.
        image_size: (height, width).
        normalize: whether its embeddings have length 1.
        extras: what `formats` to write, and what to calibrate with.

    Attributes:
        signatures: names of the SavedModel's.
        described: {format: plain values}, for the model card.
    """

    def __init__(self, folder, image_size, normalize, extras):
        self._loaded = tf.saved_model.load(folder)
        self._folder, self._bounds = folder, extras.bounds
        self._normalize = normalize
        self.signatures = list(self._loaded.signatures)
        self.described = {}
        for name in FILES:
            if name in extras.formats:
                self._write(name, image_size, normalize, extras.calibration)

    def _write(self, name, image_size, normalize, calibration):
        height, width = image_size
        told = {"file": f"assets.extra/{FILES[name]}", "normalize": bool(normalize)}
        if name == "onnx":
            content = onnx.convert(self._embed, image_size)
            told |= {"input": f"data: float32 [N, 3, {height}, {width}]"}
        else:
            kind = name.partition("_")[2] or "float32"
            embed = self._embed
            if normalize and kind == "int8":
                # Eight bits are too few for numbers of a vector of length 1.
                embed, told["normalize"] = self._loaded.raw, False
            content, whole = tflite.convert(
                self._loaded, embed, image_size, kind, calibration
            )
            dtype = "uint8" if kind == "int8" else "float32"
            told |= {"input": f"images: {dtype} [1, {height}, {width}, 3]"}
            if kind == "int8":
                told["integers_only"] = whole
        path = os.path.join(self._folder, told["file"])
        files.make_dirs(os.path.dirname(path))
        files.write(path, content)
        self.described[name] = {**told, "bytes": len(content)}

    def _embed(self, images):
        return self._loaded.signatures["images"](images=images)["embedding"]

    def run(self, signature, encoded):
        """The outputs of a signature for a list of encoded pictures, as numpy."""
        outputs = self._loaded.signatures[signature](bytes=tf.constant(encoded))
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def prove(self, proof, encoded, pictures):
        """Adds everything that embeds to a `Proof`.

        Args:
            proof: the `Proof`.
            encoded: list of bytes, the pictures.
            pictures: the same, prepared: uint8 [N, height, width, 3].

        Raises:
            RuntimeError: a bound does not hold.
        """

        def embed(images):
            return self._embed(tf.constant(images, tf.float32)).numpy()

        proof.add("serving_default", self.run("serving_default", encoded)["embedding"])
        proof.add("images", embed(pictures), embed=embed)
        for name, told in self.described.items():
            path = os.path.join(self._folder, told["file"])
            loaded = (onnx if name == "onnx" else tflite).load(files.read(path))
            if self._normalize and not told["normalize"]:
                loaded = _at_length_1(loaded)
            smallest = getattr(self._bounds, name.removeprefix("tflite_"), None)
            proof.add(name, loaded(pictures), smallest, embed=loaded)


def _at_length_1(embed):
    def at_length_1(pictures):
        found = embed(pictures)
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)

    return at_length_1
