"""One version of a model in memory: its signatures, called with rows."""

import hashlib
import json
import os
import time

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import saved_model_pb2

from plsc_tf.storage import files

DEFAULT_SIGNATURE = "serving_default"
# Not a signature: the operation that TensorFlow runs after loading.
_INIT_SIGNATURE = "__saved_model_init_op"
# Side of the picture that warms a model up whose own size is not known.
_SIDE = 112


class LoadedModel:
    """A SavedModel in memory.

    Attributes:
        version: its number.
        signature_defs: dict of `SignatureDef`, as they are in the file.
        fingerprint: hexadecimal SHA-256 of its graph and its weights' checksums; two
            models with the same one give the same embeddings.
        seconds: dict, batch size -> seconds of a batch, measured by `warm_up`.
        threshold: of the model card: {"cosine", "far", "set", ...}, the smallest cosine
            of two faces of one person; None where it has none.
    """

    def __init__(self, folder, version):
        """Loads a version folder.

        Args:
            folder: path of the folder with `saved_model.pb`.
            version: its number.

        Raises:
            ValueError, OSError, tf.errors.OpError: it cannot be loaded.
        """
        self.version = version
        graph = files.read(files.join(folder, "saved_model.pb"))
        self.signature_defs = _signature_defs(graph)
        self.fingerprint = _fingerprint(folder, graph)
        self.seconds = {}
        self._card = _card(folder)
        self.threshold = _threshold(self._card)
        self._loaded = tf.saved_model.load(folder)

    def inputs(self, signature):
        """dict, input name -> (numpy dtype, shape as a tuple with None)."""
        return _specs(self.signature_defs[signature].inputs)

    def outputs(self, signature):
        """dict, output name -> (numpy dtype, shape as a tuple with None)."""
        return _specs(self.signature_defs[signature].outputs)

    def run(self, signature, inputs):
        """Computes one batch.

        Args:
            signature: its name.
            inputs: dict, input name -> array [N, ...] or list of N bytes.

        Returns:
            dict, output name -> array [N, ...].

        Raises:
            tf.errors.OpError: it failed, perhaps because of one picture.
        """
        tensors = {name: tf.constant(value) for name, value in inputs.items()}
        outputs = self._loaded.signatures[signature](**tensors)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def warm_up(self, sizes):
        """Runs every batch size, so that the first requests are not slow.

        Args:
            sizes: batch sizes of the default signature to run and to measure.
        """
        rows = self._example(DEFAULT_SIGNATURE)
        self.run(DEFAULT_SIGNATURE, _repeated(rows, max(sizes)))
        for size in sizes:
            batch, times = _repeated(rows, size), []
            for _ in range(3):
                start = time.perf_counter()
                self.run(DEFAULT_SIGNATURE, batch)
                times.append(time.perf_counter() - start)
            self.seconds[size] = min(times)
        for signature in self.signature_defs:
            if signature != DEFAULT_SIGNATURE:
                self.run(signature, _repeated(self._example(signature), 1))

    def _example(self, signature):
        """A row of every input: noise, or noise as a JPEG."""
        noise = np.random.default_rng(0).integers(0, 256, (*self._size(), 3), np.uint8)
        picture = tf.io.encode_jpeg(noise).numpy()
        return {
            name: picture
            if dtype.kind == "O"
            else np.zeros([n or 1 for n in shape[1:]], dtype)
            for name, (dtype, shape) in self.inputs(signature).items()
        }

    def _size(self):
        size = self._card.get("image_size")
        if not (isinstance(size, list) and len(size) == 2):
            return _SIDE, _SIDE
        return tuple(size)


def _signature_defs(graph):
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString(graph)
    for meta in saved.meta_graphs:
        if "serve" in meta.meta_info_def.tags:
            found = dict(meta.signature_def)
            found.pop(_INIT_SIGNATURE, None)
            if DEFAULT_SIGNATURE in found:
                return found
    raise ValueError(
        f"the SavedModel has no signature {DEFAULT_SIGNATURE!r} under the tag 'serve'"
    )


def _fingerprint(folder, graph):
    """The index of the variables holds a checksum of each."""
    digest = hashlib.sha256(graph)
    index = os.path.join(folder, "variables", "variables.index")
    if files.exists(index):
        digest.update(files.read(index))
    return digest.hexdigest()


def _card(folder):
    path = os.path.join(folder, "assets.extra", "model_card.json")
    if not files.exists(path):
        return {}
    return json.loads(files.read(path))


def _threshold(card):
    found = card.get("threshold")
    cosine = found.get("cosine") if isinstance(found, dict) else None
    return found if type(cosine) in (int, float) else None


def _specs(infos):
    """Names in the order of the alphabet, as TF Serving's maps have them."""
    return {name: _spec(infos[name]) for name in sorted(infos)}


def _spec(info):
    if info.dtype == types_pb2.DT_STRING:
        dtype = np.dtype(object)
    else:
        dtype = np.dtype(tf.dtypes.as_dtype(info.dtype).as_numpy_dtype)
    if info.tensor_shape.unknown_rank:
        return dtype, None
    return dtype, tuple(
        None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim
    )


def _repeated(rows, count):
    return {
        name: [row] * count if isinstance(row, bytes) else np.stack([row] * count)
        for name, row in rows.items()
    }
