"""The versions that are served: found, loaded, swapped and let go.

A new version is loaded and warmed up beside the ones that answer. Then requests go to
it, from one moment to the next; the old one finishes what it has, and is freed.
"""

import asyncio
import gc
import os

import tensorflow as tf
from absl import logging

from plsc_tf.serving.server import batching
from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.serving.server.loaded import DEFAULT_SIGNATURE, LoadedModel
from plsc_tf.storage import files

# Seconds between two attempts to load a version that could not be loaded.
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
# Versions that are told about after they have ended.
_MOST_ENDED = 20


def find_versions(model_path):
    """Version folders of a model: dict, version -> path.

    Args:
        model_path: folder with folders 1, 2, ..., or one that is a version itself.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    model_path = os.fspath(model_path).rstrip("/")
    if not files.is_dir(model_path):
        there = files.exists(model_path)
        raise FileNotFoundError(
            "model_dir must be a folder with the version folders of an export. "
            f"Received: model_dir={model_path!r}, which "
            f"{'is not a folder' if there else 'does not exist'}."
        )
    if files.exists(os.path.join(model_path, "saved_model.pb")):
        name = os.path.basename(model_path)
        return {int(name) if name.isdecimal() else 1: model_path}
    found = {}
    for name in files.list_dir(model_path):
        folder = os.path.join(model_path, name)
        if name.isdecimal() and files.exists(os.path.join(folder, "saved_model.pb")):
            found[int(name)] = folder
    return found


def name_of(options):
    """The model's name in URLs."""
    if options.served_name:
        return options.served_name
    folder = os.path.abspath(os.fspath(options.model_path))
    name = os.path.basename(folder)
    return os.path.basename(os.path.dirname(folder)) if name.isdecimal() else name


class Servable:
    """A version that answers: the model and a queue for each of its signatures."""

    def __init__(self, model, make_batcher):
        self.model = model
        self.batchers = {
            signature: make_batcher(model, signature)
            for signature in model.signature_defs
        }

    @property
    def version(self):
        """Its number."""
        return self.model.version

    @property
    def idle(self):
        """Whether nothing waits or is being computed."""
        return all(batcher.idle for batcher in self.batchers.values())

    def check_signature(self, name):
        """Returns the signature's name, the default one for an empty name."""
        name = name or DEFAULT_SIGNATURE
        if name not in self.batchers:
            raise invalid(
                f'Serving signature name: "{name}" not found in signature def'
            )
        return name


class Models:
    """All versions of the served model. Methods belong to the event loop's thread."""

    def __init__(self, options, executor, metrics):
        """Knows nothing yet; see `start`.

        Args:
            options: the option group `server`.
            executor: threads that call the models.
            metrics: the `Metrics`.
        """
        self.name = name_of(options)
        self._options, self._executor, self._metrics = options, executor, metrics
        self._labels = options.labels()
        self._served = {}
        # TF Serving's states of versions that are not served: (state, code, message).
        self._others = {}
        self._retries = {}

    async def start(self):
        """Loads the newest versions.

        Raises:
            OSError: there is no version, or none could be loaded.
        """
        await self.refresh()
        if not self._served:
            errors = [message for _, _, message in self._others.values() if message]
            raise OSError(
                f"No version of {self._options.model_path!r} could be loaded: "
                f"{errors[0] if errors else 'it has no version folders 1, 2, ...'}"
            )

    async def watch(self):
        """Looks for new versions until it is cancelled."""
        while True:
            await asyncio.sleep(self._options.poll_seconds)
            try:
                await self.refresh()
            except (OSError, tf.errors.OpError) as error:
                logging.warning("Versions cannot be looked for: %s", error)

    async def refresh(self):
        """Loads what is new, then drops what is no longer among the newest."""
        loop = asyncio.get_running_loop()
        folders = await asyncio.to_thread(find_versions, self._options.model_path)
        wanted = sorted(folders, reverse=True)[: self._options.num_versions]
        for version in wanted:
            due, _ = self._retries.get(version, (0.0, 0.0))
            if version not in self._served and loop.time() >= due:
                await self._load(folders[version], version)
        for version in set(self._retries) - set(folders):
            del self._retries[version]
            del self._others[version]
        # As TF Serving, which tells about versions that have ended; not for ever.
        for version in sorted(self._others)[:-_MOST_ENDED]:
            del self._others[version]
        available = [version for version in wanted if version in self._served]
        # What cannot be loaded does not push out what works.
        kept = set(available)
        for version in sorted(self._served, reverse=True):
            if len(kept) < max(1, min(len(wanted), self._options.num_versions)):
                kept.add(version)
        for version in set(self._served) - kept:
            await self._unload(version)

    async def _load(self, folder, version):
        self._others[version] = ("LOADING", "OK", "")
        try:
            model = await asyncio.to_thread(self._read, folder, version)
        except Exception as error:  # noqa: BLE001 - any file may be broken in any way
            _, wait = self._retries.get(version, (0.0, _FIRST_RETRY))
            due = asyncio.get_running_loop().time() + wait
            self._retries[version] = (due, min(2 * wait, _LONGEST_RETRY))
            self._others[version] = ("END", "UNKNOWN", str(error)[:300])
            self._metrics.load(False)
            logging.error("Version %d cannot be loaded: %s", version, error)
            return
        self._served[version] = Servable(model, self._batcher)
        self._others.pop(version, None)
        self._retries.pop(version, None)
        self._metrics.load(True)
        self._metrics.version.set(max(self._served))
        logging.info("Version %d of %s is served", version, self.name)

    def _read(self, folder, version):
        model = LoadedModel(folder, version)
        model.warm_up(batching.sizes_up_to(self._options.max_batch_images))
        return model

    def _batcher(self, model, signature):
        return batching.Batcher(
            model, signature, self._executor, self._options, self._metrics
        )

    async def _unload(self, version):
        servable = self._served.pop(version)
        self._others[version] = ("UNLOADING", "OK", "")
        self._metrics.version.set(max(self._served, default=0))
        while not servable.idle:
            await asyncio.sleep(0.01)
        del servable
        self._others[version] = ("END", "OK", "")
        # Loaded functions refer to each other.
        await asyncio.to_thread(gc.collect)
        logging.info("Version %d of %s is no longer served", version, self.name)

    async def drain(self, seconds):
        """Waits until nothing is being computed, at most `seconds`."""
        end = asyncio.get_running_loop().time() + seconds
        while not all(servable.idle for servable in self._served.values()):
            if asyncio.get_running_loop().time() > end:
                return
            await asyncio.sleep(0.01)

    @property
    def ready(self):
        """Whether there is a version that answers."""
        return bool(self._served)

    def get(self, name=None, version=None, label=None):
        """Returns the `Servable` that a request asks for, the newest by default.

        Raises:
            RequestError: there is none.
        """
        if label:
            if label not in self._labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            version = self._labels[label]
        if name in (None, self.name) and self._served:
            if version is None:
                return self._served[max(self._served)]
            if version in self._served:
                return self._served[version]
        wanted = (
            f"Latest({name})" if version is None else f"Specific({name}, {version})"
        )
        raise RequestError("NOT_FOUND", f"Servable not found for request: {wanted}")

    def status(self, name, version=None, label=None):
        """Returns a list of (version, state, error code, message), newest first.

        Raises:
            RequestError: there is no such version.
        """
        if label:
            version = self.get(name, label=label).version
        states = {**self._others}
        states.update({v: ("AVAILABLE", "OK", "") for v in self._served})
        if name != self.name or (version is not None and version not in states):
            raise RequestError(
                "NOT_FOUND",
                f"Could not find any versions of model {name}"
                if version is None
                else f"Could not find version {version} of model {name}",
            )
        chosen = states if version is None else [version]
        return [(v, *states[v]) for v in sorted(chosen, reverse=True)]
