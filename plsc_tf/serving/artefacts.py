"""The parts of an export: the SavedModel, loaded again, and files made from it."""

from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from plsc_tf.serving.formats import onnx, tflite
from plsc_tf.serving.proof import Artefact
from plsc_tf.storage import files

SAVED_MODEL = "saved_model"
FILES = {
    "tflite": "embedding.tflite",
    "tflite_float16": "embedding_float16.tflite",
    "tflite_int8": "embedding_int8.tflite",
    "onnx": "embedding.onnx",
}
FORMATS = (SAVED_MODEL, *FILES)


def check_formats(formats: Sequence[str], calibration) -> None:
    """Finds early whatever would stop a conversion.

    Raises:
        ValueError: an unknown format, or no images to calibrate with.
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
            "tflite_int8 needs calibration images, uint8 [n, height, width, 3], like "
            "those to come. Received: none."
        )
    if "onnx" in formats:
        onnx.check_installed()


class Artefacts:
    """Loads a SavedModel and writes the other formats into its `assets.extra/`.

    Args:
        folder: of the SavedModel.
        image_size: (height, width).
        normalize: whether its embeddings have length 1.
        extras: the `Extras`, for the formats, their calibration and bounds.

    Attributes:
        described: {format: plain values}, for the model card.
    """

    def __init__(
        self, folder: str, image_size: tuple[int, int], normalize: bool, extras
    ):
        self._loaded = tf.saved_model.load(folder)
        self._embed = self._loaded.signatures["images"]
        self._folder, self._normalize = folder, normalize
        self._bounds, self.described = extras.bounds, {}
        for name in FILES:
            if name in extras.formats:
                self.described[name] = self._write(name, image_size, extras.calibration)

    def _write(self, name, image_size, calibration):
        height, width = image_size
        described = {
            "file": f"assets.extra/{FILES[name]}",
            "normalize": bool(self._normalize),
        }

        def embed(images):
            return self._embed(images=images)["embedding"]

        if name == "onnx":
            content = onnx.convert(embed, image_size)
            described["input"] = f"data: float32 [N, 3, {height}, {width}]"
        else:
            kind = name.partition("_")[2] or "float32"
            if self._normalize and kind == "int8":
                # Eight bits are too few for numbers of a vector of length 1.
                embed, described["normalize"] = self._loaded.raw, False
            content, whole = tflite.convert(
                self._loaded, embed, image_size, kind, calibration
            )
            dtype = "uint8" if kind == "int8" else "float32"
            described["input"] = f"images: {dtype} [1, {height}, {width}, 3]"
            if kind == "int8":
                described["integers_only"] = whole
        files.make_dirs(files.join(self._folder, "assets.extra"))
        files.write(files.join(self._folder, described["file"]), content)
        return {**described, "bytes": len(content)}

    def run(self, signature: str, encoded: Sequence[bytes]) -> dict[str, np.ndarray]:
        """The outputs of a signature for encoded images."""
        outputs = self._loaded.signatures[signature](bytes=tf.constant(encoded))
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def to_prove(self, encoded: Sequence[bytes]) -> Iterator[Artefact]:
        """Yields every signature and file that embeds.

        Args:
            encoded: the images of the proof as files.
        """

        def embed(images):
            images = tf.constant(images, tf.float32)
            return self._embed(images=images)["embedding"].numpy()

        def embed_files(images):
            return self.run("serving_default", encoded)["embedding"]

        yield Artefact("serving_default", embed_files, verified=False)
        yield Artefact("images", embed)
        for name, described in self.described.items():
            content = files.read(files.join(self._folder, described["file"]))
            loaded = (onnx if name == "onnx" else tflite).load(content)
            if self._normalize and not described["normalize"]:
                loaded = _normalized(loaded)
            smallest = getattr(self._bounds, name.removeprefix("tflite_"), None)
            yield Artefact(name, loaded, smallest)


def _normalized(embed):
    def normalized(images):
        rows = embed(images)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)

    return normalized
