"""The versions that are served: found, loaded, swapped and freed.

A new version is loaded and warmed up while the others answer. Then requests go to it,
from one moment to the next; the old one finishes its requests, and is freed.
"""

import asyncio
import gc
import os

import tensorflow as tf
from absl import logging

from plsc_tf.serving import versions
from plsc_tf.serving.server import batching
from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.serving.server.loaded import LoadedModel
from plsc_tf.storage import files

# Seconds between two attempts to load a version that could not be loaded.
_FIRST_RETRY, _LONGEST_RETRY = 1.0, 60.0
# Versions whose status is reported after they have ended.
_MOST_ENDED = 20


def find_versions(model_path: str) -> dict[int, str]:
    """Version folders of a model: dict, version -> path.

    Args:
        model_path: folder with folders 1, 2, ..., or one that is a version itself.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    model_path = os.fspath(model_path).rstrip("/")
    if not files.is_dir(model_path):
        reason = "is not a folder" if files.exists(model_path) else "does not exist"
        raise FileNotFoundError(
            "model_dir must be a folder with the version folders of an export. "
            f"Received: model_dir={model_path!r}, which {reason}."
        )
    if _is_model(model_path):
        name = files.name(model_path)
        return {int(name) if name.isdecimal() else 1: model_path}
    folders = versions.find(model_path)
    return {number: path for number, path in folders.items() if _is_model(path)}


def _is_model(folder):
    return files.exists(files.join(folder, "saved_model.pb"))


def name_of(options) -> str:
    """The model's name in URLs."""
    if options.served_name:
        return options.served_name
    folder = os.path.abspath(os.fspath(options.model_path))
    name = os.path.basename(folder)
    return os.path.basename(os.path.dirname(folder)) if name.isdecimal() else name


class Models:
    """All versions of the served model. Methods belong to the event loop's thread."""

    def __init__(self, options, executor, metrics):
        """Loads nothing yet; see `start`.

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

    async def start(self) -> None:
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

    async def watch(self) -> None:
        """Looks for new versions until it is cancelled."""
        while True:
            await asyncio.sleep(self._options.poll_seconds)
            try:
                await self.refresh()
            except (OSError, tf.errors.OpError) as error:
                logging.warning("Cannot look for new versions: %s", error)

    async def refresh(self) -> None:
        """Loads new versions, then drops those no longer among the newest."""
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
        # TF Serving reports versions that have ended too; here not for ever.
        for version in sorted(self._others)[:-_MOST_ENDED]:
            del self._others[version]
        keep = [version for version in wanted if version in self._served]
        # A version that cannot be loaded does not push out one that works.
        rest = sorted(set(self._served) - set(keep), reverse=True)
        keep += rest[: max(1, len(wanted)) - len(keep)]
        for version in set(self._served) - set(keep):
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
            logging.error("Cannot load version %d: %s", version, error)
            return
        self._served[version] = model
        self._others.pop(version, None)
        self._retries.pop(version, None)
        self._metrics.load(True)
        self._metrics.version.set(max(self._served))
        logging.info("Serving version %d of %s", version, self.name)

    def _read(self, folder, version):
        model = LoadedModel(folder, version)
        model.warm_up(batching.sizes_up_to(self._options.max_batch_images))
        model.make_batchers(self._executor, self._options, self._metrics)
        return model

    async def _unload(self, version):
        model = self._served.pop(version)
        self._others[version] = ("UNLOADING", "OK", "")
        self._metrics.version.set(max(self._served, default=0))
        while not model.idle:
            await asyncio.sleep(0.01)
        del model
        self._others[version] = ("END", "OK", "")
        # Loaded functions refer to each other.
        await asyncio.to_thread(gc.collect)
        logging.info("Version %d of %s is no longer served", version, self.name)

    @property
    def idle(self) -> bool:
        """Whether no version has rows that wait or are being computed."""
        return all(model.idle for model in self._served.values())

    @property
    def ready(self) -> bool:
        """Whether a version answers."""
        return bool(self._served)

    def get(
        self,
        name: str | None = None,
        version: int | None = None,
        label: str | None = None,
    ) -> LoadedModel:
        """Returns the version that a request names, the newest by default.

        Raises:
            RequestError: there is none.
        """
        if label:
            if label not in self._labels:
                raise invalid(f"Unrecognized servable version label: {label}")
            version = self._labels[label]
        if name in (None, self.name) and self._served:
            number = max(self._served) if version is None else version
            if number in self._served:
                return self._served[number]
        wanted = f"Latest({name})"
        if version is not None:
            wanted = f"Specific({name}, {version})"
        raise RequestError("NOT_FOUND", f"Servable not found for request: {wanted}")

    def status(
        self, name: str, version: int | None = None, label: str | None = None
    ) -> list[tuple[int, str, str, str]]:
        """Returns a list of (version, state, error code, message), newest first.

        Raises:
            RequestError: there is no such version.
        """
        if label:
            version = self.get(name, label=label).version
        available = dict.fromkeys(self._served, ("AVAILABLE", "OK", ""))
        states = self._others | available
        if name != self.name or (version is not None and version not in states):
            what = "any versions" if version is None else f"version {version}"
            raise RequestError("NOT_FOUND", f"Could not find {what} of model {name}")
        chosen = states if version is None else [version]
        return [(number, *states[number]) for number in sorted(chosen, reverse=True)]
