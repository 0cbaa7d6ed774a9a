"""The hidden folder that a conversion works in, and the journal that it goes on from.

It lies beside the output, so that the finished shards become the output in one move.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time

from absl import logging

from plsc_tf.storage import files, local
from plsc_tf.storage.errors import StorageError

_JOURNAL, _LOCK = "journal.json", "lock"


class Work:
    """The folder `.<output>.converting`, locked while a process works in it.

    Args:
        output_dir: the finished conversion's folder, local.
        fingerprint: of inputs and options; a journal with another one is dropped.
        commit_every_s: seconds between two entries of the journal.

    Attributes:
        state: what the journal says, {} at the beginning.

    Raises:
        RuntimeError: another process works in the folder.
    """

    def __init__(self, output_dir: str, fingerprint: str, commit_every_s: float):
        self.folder = work_folder(output_dir)
        self._output_dir = os.path.abspath(output_dir)
        self._fingerprint = fingerprint
        self._every_s = commit_every_s
        os.makedirs(self.folder, exist_ok=True)
        self._lock = _lock(os.path.join(self.folder, _LOCK))
        self.state = self._read()
        for path in (self.buckets, self.shards):
            os.makedirs(path, exist_ok=True)
        self._last = time.monotonic()

    @property
    def buckets(self) -> str:
        """The folder of the buckets."""
        return os.path.join(self.folder, "buckets")

    @property
    def shards(self) -> str:
        """The folder of the shards, which becomes the output."""
        return os.path.join(self.folder, "shards")

    def due(self) -> bool:
        """Whether it is time for an entry of the journal."""
        return time.monotonic() - self._last >= self._every_s

    def commit(self, state: dict) -> None:
        """Notes how far the conversion is; what it refers to is on the disk."""
        text = json.dumps({"fingerprint": self._fingerprint, "state": state})
        files.replace(os.path.join(self.folder, _JOURNAL), text.encode())
        self._last = time.monotonic()

    def publish(self) -> None:
        """Makes the shards the output, and removes the rest."""
        local.sync_folder(self.shards)
        if os.path.isdir(self._output_dir) and not os.listdir(self._output_dir):
            os.rmdir(self._output_dir)
        local.rename(self.shards, self._output_dir)
        shutil.rmtree(self.folder)

    def close(self) -> None:
        """Lets another process go on."""
        os.close(self._lock)

    def _read(self):
        path = os.path.join(self.folder, _JOURNAL)
        if not os.path.exists(path):
            self._clear()
            return {}
        journal = json.loads(files.read(path))
        if journal["fingerprint"] == self._fingerprint:
            logging.info("Going on with the conversion in %s.", self.folder)
            return journal["state"]
        logging.warning(
            "%s holds an unfinished conversion of other inputs or options; it starts "
            "anew.",
            self.folder,
        )
        os.remove(path)
        self._clear()
        return {}

    def _clear(self):
        for path in (self.buckets, self.shards):
            shutil.rmtree(path, ignore_errors=True)


def work_folder(output_dir: str) -> str:
    """Where a conversion to this folder works."""
    parent, name = os.path.split(os.path.abspath(output_dir))
    return os.path.join(parent, f".{name}.converting")


def full_disk(error: OSError, folder: str) -> StorageError:
    """The error that says what to do when no room is left."""
    free = shutil.disk_usage(folder).free if os.path.isdir(folder) else 0
    return StorageError(
        f"The disk of {folder} is full ({free / 1e6:.0f} MB are free): "
        f"{error.strerror}. Make room, then run the same command again: it goes on "
        "from here.",
        error.errno,
    )


def _lock(path):
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise RuntimeError(
            f"Another process is converting in {os.path.dirname(path)}. Wait for it, "
            "or end it first."
        ) from None
    return file
