"""Exported models and ONNX files, to embed images with them."""

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from plsc_tf.checkpoints.importers import onnx_files
from plsc_tf.data import images as image_ops, preprocessing
from plsc_tf.evaluation import quality
from plsc_tf.evaluation.verification import lengths, unit
from plsc_tf.requirements import require
from plsc_tf.serving import versions
from plsc_tf.storage import files, transfer


class ExportedModel:
    """The newest version of a SavedModel exported by `plsc_tf`.

    Args:
        folder: folder with versions 1, 2, ..., or with saved_model.pb.
        rates: whether the quality of images is needed.

    Attributes:
        path: path of the version.
        frame: the `Preprocessing` of its images.
        fingerprint: digest of what embeddings depend on; "" if it is not known.
        rates: whether it knows the quality of images.

    Raises:
        FileNotFoundError: there is no version.
        ValueError: it has no model card, its own preprocessing, or no quality although
            it is needed.
    """

    def __init__(self, folder: str, rates: bool = False):
        folders = versions.find_models(folder, "saved_model")
        rule = "saved_model must be a folder with versions 1, 2, ... or saved_model.pb"
        require(folders, rule, raises=FileNotFoundError, saved_model=repr(folder))
        self.path = path = folders[max(folders)]
        card = versions.read_card(path)
        name = card.get("preprocessing", "resize")
        self.fingerprint = card.get("fingerprint", "")
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


class OnnxModel:
    """A face network in an ONNX file, computed by ONNX Runtime; it is never trained.

    It gets RGB images of (x - 127.5) / 127.5, `[n, 3, height, width]`, as insightface's
    networks do, and returns embeddings `[n, size]`.

    Args:
        path: path of the file.

    Attributes:
        path, frame, fingerprint, rates: as of an `ExportedModel`.
        signatures: {"serving_default": function of `bytes`, encoded images, "images":
            of `images`, framed ones}, like those of a loaded SavedModel.
        signature_defs: {signature: `SignatureDef`}.

    Raises:
        ImportError: a package is missing.
        ValueError: the file is damaged, or its input or output is not as above.
    """

    rates = False

    def __init__(self, path: str):
        self.path, self._session = path, onnx_files.session(path)
        self.fingerprint = files.checksum(path, "sha256")["sha256"]
        entry, *others = self._session.get_inputs()
        shape, found = entry.shape, self._session.get_outputs()[0].shape
        fixed = [size for size in shape[1:] if isinstance(size, int)]
        rule = f"{path} must have one input [images, 3, height, width]"
        require(len(fixed) == 3 == shape[1] and not others, rule, shape=shape)
        rule = f"{path} must return [images, size], with a known size"
        require(len(found) == 2 and isinstance(found[1], int), rule, shape=found)
        self.frame = preprocessing.build("face", tuple(fixed[1:]), None)
        self.signatures = {"serving_default": self._serve, "images": self._outputs}
        outputs = {"embedding": _tensor(tf.float32, [None, found[1]])}
        same = {"method_name": "tensorflow/serving/predict", "outputs": outputs}
        encoded = {"bytes": _tensor(tf.string, [None])}
        framed = {"images": _tensor(tf.float32, [None, *fixed[1:], 3])}
        kind = meta_graph_pb2.SignatureDef
        self.signature_defs = {"serving_default": kind(inputs=encoded, **same)}
        self.signature_defs["images"] = kind(inputs=framed, **same)

    def _serve(self, **inputs):
        decoded = map(image_ops.decode, inputs["bytes"])
        return self._outputs(np.stack([self.frame.evaluate(one) for one in decoded]))

    def _outputs(self, images):
        return {"embedding": tf.constant(self.embed(np.asarray(images))[0])}

    def embed(self, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See `ExportedModel.embed`."""
        images = (pixels.astype(np.float32) - 127.5) / 127.5
        rows = onnx_files.run(self._session, images)
        return rows, lengths(rows)


def _tensor(dtype, shape):
    shape, dtype = tf.TensorShape(shape).as_proto(), dtype.as_datatype_enum
    return meta_graph_pb2.TensorInfo(dtype=dtype, tensor_shape=shape)


def open_model(path: str, rates: bool = False) -> ExportedModel | OnnxModel:
    """Opens an export or an ONNX file; see `ExportedModel`."""
    if not path.endswith(".onnx"):
        return ExportedModel(path, rates)
    require(not rates, "Only an export of plsc_tf knows the quality of images")
    return OnnxModel(path)
