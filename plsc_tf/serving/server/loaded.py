"""One version of a model in memory: its signatures, and a queue for each."""

import hashlib
import json
import time
from collections.abc import Iterable

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from plsc_tf.serving.server.batching import Batcher
from plsc_tf.serving.server.errors import invalid
from plsc_tf.storage import files

DEFAULT_SIGNATURE = "serving_default"
# Not a signature: the operation that TensorFlow runs after loading.
_INIT_SIGNATURE = "__saved_model_init_op"
# Side of the image that warms up a model of unknown size.
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
            of two faces of one person; None if it has none.
        batchers: dict, signature -> its `Batcher`, after `make_batchers`.
    """

    def __init__(self, folder: str, version: int):
        """Loads a version folder.

        Args:
            folder: path of the folder with `saved_model.pb`.
            version: its number.

        Raises:
            ValueError, OSError, tf.errors.OpError: it cannot be loaded.
        """
        self.version, self.seconds, self.batchers = version, {}, {}
        graph = files.read(files.join(folder, "saved_model.pb"))
        self.signature_defs = _signature_defs(graph)
        # The index of the variables holds a checksum of each.
        weights = _read(folder, "variables/variables.index")
        self.fingerprint = hashlib.sha256(graph + weights).hexdigest()
        self._card = json.loads(_read(folder, "assets.extra/model_card.json") or "{}")
        self.threshold = _threshold(self._card)
        self._loaded = tf.saved_model.load(folder)

    def make_batchers(self, executor, options, metrics) -> None:
        """Makes the queue of each signature; see `Batcher`."""
        for name in self.signature_defs:
            self.batchers[name] = Batcher(self, name, executor, options, metrics)

    @property
    def idle(self) -> bool:
        """Whether no row waits or is being computed."""
        return all(batcher.idle for batcher in self.batchers.values())

    def check_signature(self, name: str) -> str:
        """Returns the signature's name, the default one for an empty name."""
        name = name or DEFAULT_SIGNATURE
        if name not in self.signature_defs:
            raise invalid(
                f'Serving signature name: "{name}" not found in signature def'
            )
        return name

    def inputs(self, signature: str) -> dict:
        """dict, input name -> (numpy dtype, shape as a tuple with None)."""
        return _specs(self.signature_defs[signature].inputs)

    def outputs(self, signature: str) -> dict:
        """dict, output name -> (numpy dtype, shape as a tuple with None)."""
        return _specs(self.signature_defs[signature].outputs)

    def run(self, signature: str, inputs: dict) -> dict[str, np.ndarray]:
        """Computes one batch.

        Args:
            signature: its name.
            inputs: dict, input name -> array [N, ...] or list of N bytes.

        Returns:
            dict, output name -> array [N, ...].

        Raises:
            tf.errors.OpError: it failed, perhaps because of one image.
        """
        tensors = {name: tf.constant(value) for name, value in inputs.items()}
        outputs = self._loaded.signatures[signature](**tensors)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def warm_up(self, sizes: Iterable[int]) -> None:
        """Runs every batch size, so that the first requests are not slow.

        Args:
            sizes: batch sizes of the default signature to run and to measure.
        """
        row = self._example(DEFAULT_SIGNATURE)
        self.run(DEFAULT_SIGNATURE, _repeated(row, max(sizes)))
        for size in sizes:
            batch, times = _repeated(row, size), []
            for _ in range(3):
                start = time.perf_counter()
                self.run(DEFAULT_SIGNATURE, batch)
                times.append(time.perf_counter() - start)
            self.seconds[size] = min(times)
        for signature in self.signature_defs:
            if signature != DEFAULT_SIGNATURE:
                self.run(signature, _repeated(self._example(signature), 1))

    def _example(self, signature):
        """A row of every input: zeros, or noise as a JPEG."""
        size = self._card.get("image_size")
        if not (isinstance(size, list) and len(size) == 2):
            size = (_SIDE, _SIDE)
        noise = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
        image = tf.io.encode_jpeg(noise).numpy()
        return {
            name: image
            if dtype.kind == "O"
            else np.zeros([n or 1 for n in shape[1:]], dtype)
            for name, (dtype, shape) in self.inputs(signature).items()
        }


def _signature_defs(graph):
    for meta in saved_model_pb2.SavedModel.FromString(graph).meta_graphs:
        if "serve" in meta.meta_info_def.tags:
            signatures = dict(meta.signature_def)
            signatures.pop(_INIT_SIGNATURE, None)
            if DEFAULT_SIGNATURE in signatures:
                return signatures
    raise ValueError(
        f"the SavedModel has no signature {DEFAULT_SIGNATURE!r} under the tag 'serve'"
    )


def _read(folder, name):
    path = files.join(folder, name)
    return files.read(path) if files.exists(path) else b""


def _threshold(card):
    threshold = card.get("threshold")
    cosine = threshold.get("cosine") if isinstance(threshold, dict) else None
    return threshold if type(cosine) in (int, float) else None


def _specs(infos):
    """By name in alphabetical order, as TF Serving's maps have them."""
    return {name: _spec(infos[name]) for name in sorted(infos)}


def _spec(info):
    # Texts are objects.
    dtype = np.dtype(tf.dtypes.as_dtype(info.dtype).as_numpy_dtype)
    if info.tensor_shape.unknown_rank:
        return dtype, None
    sizes = [dim.size for dim in info.tensor_shape.dim]
    return dtype, tuple(None if size < 0 else size for size in sizes)


def _repeated(row, count):
    return {
        name: [value] * count if isinstance(value, bytes) else np.stack([value] * count)
        for name, value in row.items()
    }
