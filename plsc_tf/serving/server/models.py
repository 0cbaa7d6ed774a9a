"""Finds, loads, runs, replaces and unloads the served versions of a model.

A new version is loaded and warmed up while the others answer requests. It then receives
all new requests, while the old version finishes its requests and is unloaded.
"""

import asyncio
import functools
import gc
import os
import pathlib
import timeit
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.core.protobuf import saved_model_pb2

from plsc_tf.data.image_limit import num_pixels
from plsc_tf.requirements import require
from plsc_tf.serving import exported, versions
from plsc_tf.serving.evaluation_card import check_threshold
from plsc_tf.serving.server import rest
from plsc_tf.serving.server.batching import Batcher, sizes_up_to
from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.serving.server.limits import check_count, check_image
from plsc_tf.serving.server.turns import Turns
from plsc_tf.storage import files, transfer

DEFAULT_SIGNATURE, QUALITY_SIGNATURE = "serving_default", "quality"
# Listed among the signatures, but TensorFlow only runs it after loading.
_INIT_SIGNATURE = "__saved_model_init_op"
# The headers of more images, or with more bytes together, are read outside the event
# loop: each may take 70 microseconds.
_FEW, _LARGE = 4, 1 << 16
# What a model card states for the metadata.
_STATED = ("permitted_use", "origins")
# Height and width of the warm-up image.
_SIDE = 112
# Seconds before a version that could not be loaded is tried again, and how much longer
# that is than the attempt took.
_RETRY_SECONDS, _RETRY_RATIO = 10.0, 10


class LoadedModel:
    """One loaded version of a model, with a request queue for each signature.

    Attributes:
        version: version number.
        signature_defs: {signature: `SignatureDef`}, as stored in the file.
        embedding_size: length of an embedding.
        fingerprint: the model card's; models with the same fingerprint compute the same
            embeddings.
        seconds: {batch size: measured seconds per batch}.
        stamp: `versions.stamp` of the folder.
        threshold: the model card's threshold {"cosine", "far", "set", ...}, where
            "cosine" is the smallest cosine of two faces of the same person; None if the
            card has no threshold.
    """

    def __init__(self, folder: str, version: int, executor, options, metrics):
        """Loads a version folder and warms it up.

        Args:
            folder: path of the folder with `saved_model.pb`, or of an ONNX file.
            version: version number.
            executor: thread pool that calls the model.
            options: the option group `server`.
            metrics: the `Metrics`.

        Raises:
            ValueError, OSError, tf.errors.OpError: the version cannot be loaded.
        """
        self.version, self.seconds, self._options = version, {}, options
        self.stamp = versions.stamp(folder)
        card, self._loaded, self.signature_defs = _open(folder)
        self._inputs = {name: _input(d) for name, d in self.signature_defs.items()}
        both = QUALITY_SIGNATURE, DEFAULT_SIGNATURE
        self._embeds = next(name for name in both if name in self.signature_defs)
        outputs = self.signature_defs[DEFAULT_SIGNATURE].outputs
        self.embedding_size = outputs["embedding"].tensor_shape.dim[-1].size
        # Long or nested ones would make requests for the metadata wait.
        self.origins = {k: str(card[k])[:9999] for k in _STATED if k in card}
        # Without a fingerprint, it counts as another model each time it is loaded.
        self.fingerprint = str(card.get("fingerprint") or os.urandom(8).hex())
        threshold = card.get("threshold") or {}
        threshold.pop("calibration", None)  # it may be long
        # Otherwise, requests would fail or wait, not only this version.
        check_threshold(threshold)
        told = rest.write_json([threshold, self.fingerprint])
        fits = len(told) < _LARGE and self.fingerprint.isascii()
        require(fits, "The facts in model_card.json are too long, or not ASCII")
        self.threshold = threshold if threshold.get("cosine") is not None else None
        self._warm_up(sizes_up_to(options.max_batch_images))
        common = executor, options, metrics
        self._turns = Turns()
        self._batchers = {k: Batcher(self, k, *common) for k in self.signature_defs}

    @property
    def idle(self) -> bool:
        """True if no row is waiting or being computed."""
        return all(batcher.idle for batcher in self._batchers.values())

    def input(self, signature: str) -> tuple[str, str, np.dtype, list]:
        """Returns the (signature, name, dtype, shape) of a signature's input.

        Args:
            signature: name of a signature; "" selects the default signature.

        Raises:
            RequestError: the model has no such signature.
        """
        signature = signature or DEFAULT_SIGNATURE
        if signature not in self._inputs:
            names = sorted(self._inputs)
            raise invalid(f"The signatures are {names}. Received: {signature[:100]!r}.")
        return signature, *self._inputs[signature]

    async def predict(self, signature: str, values: Sequence) -> dict[str, np.ndarray]:
        """Checks the values of the input and computes a signature's outputs.

        Args:
            signature: name of a signature.
            values: array `[N, ...]` or list of N bytes or pairs of bytes.

        Returns:
            {output name: array `[N, ...]`}.

        Raises:
            RequestError: the values are invalid, or cannot be computed now.
        """
        _, name, dtype, shape = self.input(signature)
        if isinstance(values, np.ndarray) and list(values.shape[1:]) != shape[1:]:
            found = list(values.shape)
            raise invalid(f"Input {name} must have shape {shape}. Received: {found}.")
        check_count(len(values), self._options.max_request_images)
        if signature == "verify":
            # As single images, they share batches with those of other requests.
            images = [image for pair in values for image in pair]
            rows = (await self.predict(self._embeds, images))["embedding"]
            rows = rows.reshape(len(values), 2, -1)
            return await self.predict("verify_embeddings", rows)
        pixels = [0] * len(values)
        if dtype.kind == "O":
            if len(values) > _FEW or sum(map(len, values)) > _LARGE:
                pixels = await self._turns.call(self._pixels, values)
            else:
                pixels = self._pixels(values)
        return await self._batchers[signature].run(values, pixels)

    async def embed(self, images: list[bytes]) -> list[dict]:
        """Returns {"embedding", "quality"} of each encoded image.

        The embedding is float32 `[embedding_size]`; the quality is a number from 0 to
        1, and left out if the model does not know it.

        Raises:
            RequestError: an image is invalid, or the images cannot be computed now.
        """
        outputs = await self.predict(self._embeds, images)
        names = [name for name in ("embedding", "quality") if name in outputs]
        return rest.rows({name: outputs[name] for name in names})

    def run(self, signature: str, values: Sequence) -> dict[str, np.ndarray]:
        """Computes one batch.

        Args:
            signature: name of a signature.
            values: array `[N, ...]` or list of N bytes.

        Raises:
            tf.errors.OpError: the batch failed, possibly because of a single image.
        """
        # `predict` has checked all but the data of PNGs, which may take a second.
        pngs = (v for v in values if isinstance(v, bytes) and v[:4] == b"\x89PNG")
        if not all(num_pixels(png, self._options.max_megapixels * 1e6) for png in pngs):
            raise ValueError("it is damaged, or has too many scans or texts.")
        # TensorFlow prints the tensors of a call without names, which takes long.
        inputs = {self.input(signature)[1]: tf.constant(values)}
        outputs = self._loaded.signatures[signature](**inputs)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    def _pixels(self, images):
        return [check_image(i, one, self._options) for i, one in enumerate(images)]

    def _warm_up(self, sizes: Iterable[int]) -> None:
        """Runs and times every batch size, which also makes the first requests fast."""
        noise = np.random.default_rng(0).integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)
        image = tf.io.encode_jpeg(noise).numpy()
        for size in sizes:
            run = functools.partial(self.run, self._embeds, [image] * size)
            self.seconds[size] = min(timeit.repeat(run, number=1, repeat=3))
        for signature in set(self.signature_defs) - {self._embeds}:
            *_, dtype, shape = self.input(signature)
            value = image if dtype.kind == "O" else np.ones((), dtype)
            self.run(signature, tf.fill([1, *shape[1:]], value))


def _input(definition):
    """Returns the (name, dtype, shape) of a signature's input."""
    ((name, info),) = definition.inputs.items()
    # Strings have numpy's dtype object.
    dtype = np.dtype(tf.dtypes.as_dtype(info.dtype).as_numpy_dtype)
    return name, dtype, tf.TensorShape(info.tensor_shape).as_list()


def _open(path):
    """Returns (model card, model with `signatures`, their definitions)."""
    if path.endswith(".onnx"):
        model = exported.OnnxModel(path)
        return {"fingerprint": model.fingerprint}, model, model.signature_defs
    definitions = _signature_defs(files.read(files.join(path, "saved_model.pb")))
    card, copy = versions.read_card(path), transfer.LocalFolder(path)
    return card, tf.saved_model.load(copy.downloaded()), definitions


def _signature_defs(graph):
    for meta in saved_model_pb2.SavedModel.FromString(graph).meta_graphs:
        signatures = dict(meta.signature_def)
        signatures.pop(_INIT_SIGNATURE, None)
        default = signatures.get(DEFAULT_SIGNATURE)
        one_input = all(len(one.inputs) == 1 for one in signatures.values())
        if default and one_input and "embedding" in default.outputs:
            return signatures
    raise ValueError(
        "The model was not exported by plsc_tf: expected signatures with one input "
        f"each, and the output 'embedding' in {DEFAULT_SIGNATURE!r}."
    )


def _collect():
    """Frees loaded functions, which form cycles, and exempts what stays from the next.

    Else, each request with many values would make Python's garbage collector go through
    all objects of TensorFlow: 0.2 s, in which it holds Python's lock.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


async def _finish(models):
    """Frees models that get no new requests when they have answered the others."""
    while not all(model.idle for model in models):
        await asyncio.sleep(0.01)
    models.clear()
    await asyncio.to_thread(_collect)


class Models:
    """All versions of the served model. Call it only from the event loop's thread."""

    def __init__(self, options, executor, metrics):
        """Prepares to serve; `start` loads the versions.

        Args:
            options: the option group `server`.
            executor: thread pool that calls the models.
            metrics: the `Metrics`.
        """
        folder = pathlib.Path(os.path.abspath(options.model_path))
        parent = folder.parent if folder.name.isdecimal() else folder
        self.name = options.served_name or parent.name.removesuffix(".onnx")
        self._options, self._executor, self._metrics = options, executor, metrics
        self._served = {}
        # {version that could not be loaded: (why, time of the next attempt)}.
        self._failures = {}
        metrics.version.set_function(lambda: max(self._served, default=0))

    async def start(self) -> None:
        """Loads the newest versions.

        Raises:
            OSError: no version exists, or none could be loaded.
        """
        await self.refresh()
        if not self._served:
            errors = [*self.failed.get("failed", {}).values()]
            raise OSError(
                f"No version of {self._options.model_path!r} could be loaded: "
                f"{errors[0] if errors else 'it has no version folders (1, 2, 3)'}."
            )

    async def watch(self) -> None:
        """Looks for new versions periodically until cancelled."""
        while self._options.poll_seconds:
            await asyncio.sleep(self._options.poll_seconds)
            try:
                await self.refresh()
            except (OSError, tf.errors.OpError) as error:
                logging.warning("Cannot look for new versions: %s", error)

    async def refresh(self) -> None:
        """Loads new versions, then unloads all but the newest ones."""
        path = self._options.model_path
        folders = await asyncio.to_thread(versions.find_models, path)
        keep = []
        for version in sorted(folders, reverse=True):
            stamp = await asyncio.to_thread(versions.stamp, folders[version])
            # The next export after a removal may have the same number.
            if version in self._served and stamp == self._served[version].stamp:
                self._failures.pop(version, None)
            else:
                await self._load(folders[version], version)
            # In place of a version that cannot be loaded, serve the one before it.
            keep += [version] if version in self._served else []
            if len(keep) == self._options.num_versions:
                break
        for version in set(self._failures) - set(folders):
            del self._failures[version]
        # If no folder is left, keep the newest version.
        keep = keep or sorted(self._served)[-1:]
        for version in set(self._served) - set(keep):
            await _finish([self._served.pop(version)])
            logging.info("Version %d of %s is no longer served", version, self.name)

    async def _load(self, folder, version):
        """Loads a version, unless that has failed not long ago."""
        now = asyncio.get_running_loop().time
        start = now()
        if start < self._failures.get(version, ("", 0))[1]:
            return
        try:
            common = self._executor, self._options, self._metrics
            model = await asyncio.to_thread(LoadedModel, folder, version, *common)
        except Exception as error:  # noqa: BLE001 - any file may be broken in any way
            end = now()
            pause = max(_RETRY_SECONDS, _RETRY_RATIO * (end - start))
            self._failures[version] = str(error)[:300] or "unknown", end + pause
            self._metrics.loads.labels("failed").inc()
            logging.error("Cannot load version %d: %s", version, error)
            return
        await asyncio.to_thread(_collect)
        replaced = [self._served[version]] if version in self._served else []
        self._served[version] = model
        self._failures.pop(version, None)
        self._metrics.loads.labels("ok").inc()
        logging.info("Serving version %d of %s", version, self.name)
        if replaced:
            await _finish(replaced)

    @property
    def failed(self) -> dict[str, dict[str, str]]:
        """{"failed": {version: why it could not be loaded}}, or empty."""
        failed = {str(k): reason for k, (reason, _) in self._failures.items()}
        return {"failed": failed} if failed else {}

    def get(self, name: str | None = None, version: int | None = None) -> LoadedModel:
        """Returns the version that a request names, or the newest by default.

        Raises:
            RequestError: the model or version does not exist.
        """
        if name in (None, self.name) and self._served:
            number = max(self._served) if version is None else version
            # A thread may call this while the event loop removes a version.
            if found := self._served.get(number):
                return found
        request = f"Latest({name})"
        if version is not None:
            request = f"Specific({name}, {version})"
        raise RequestError("NOT_FOUND", f"Servable not found for request: {request}")

    def status(self, name: str, version: int | None = None) -> dict[int, tuple]:
        """Returns {version: (state, error message or "")}, newest first.

        A version that could not be loaded is at its END. The reason may name folders,
        so it is only in the log and in /healthz.

        Raises:
            RequestError: the model or version does not exist.
        """
        states = dict.fromkeys(self._failures, ("END", "It could not be loaded."))
        states |= dict.fromkeys(self._served, ("AVAILABLE", ""))
        if name != self.name or (version is not None and version not in states):
            what = "any versions" if version is None else f"version {version}"
            raise RequestError("NOT_FOUND", f"Could not find {what} of model {name}")
        chosen = states if version is None else [version]
        return {number: states[number] for number in sorted(chosen, reverse=True)}
