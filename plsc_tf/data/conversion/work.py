"""The hidden working folder of a conversion, with the journal that it resumes from.

It is next to the output, so that the finished shards become the output in one move.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time

from absl import logging

from plsc_tf.data.conversion.shards import read_manifest
from plsc_tf.storage import files, local

# Version 1 was journal.json, whose states cannot be resumed from.
_JOURNAL, _LOCK = "journal-2.json", "lock"


class Work:
    """The folder `.<output>.converting`, locked while a process works in it.

    Args:
        output_dir: folder of the finished conversion, local.
        fingerprint: of inputs and options; a journal with another one is dropped.
        commit_every_s: seconds between two entries of the journal.

    Attributes:
        state: the last entry of the journal, None without one.

    Raises:
        RuntimeError: another process works in the folder.
    """

    def __init__(self, output_dir: str, fingerprint: str, commit_every_s: float):
        self.folder = _work_folder(output_dir)
        self.buckets = os.path.join(self.folder, "buckets")
        self.shards = os.path.join(self.folder, "shards")
        self._output_dir = os.path.abspath(output_dir)
        self._fingerprint = fingerprint
        self._every_s = commit_every_s
        os.makedirs(self.folder, exist_ok=True)
        self._lock = os.open(os.path.join(self.folder, _LOCK), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise RuntimeError(
                f"Another process is converting in {self.folder}. Wait for it, or end "
                "it first."
            ) from None
        self.state = self._read()
        for path in (self.buckets, self.shards):
            if self.state is None:
                shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path, exist_ok=True)
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time for an entry of the journal."""
        return time.monotonic() - self._last >= self._every_s

    def commit(self, state: dict) -> None:
        """Writes an entry of the journal; the files it counts on are on the disk."""
        text = json.dumps({"fingerprint": self._fingerprint, "state": state})
        files.replace(os.path.join(self.folder, _JOURNAL), text.encode())
        self._last = time.monotonic()

    def publish(self) -> None:
        """Makes the shards the output, and removes the rest."""
        local.sync_folder(self.shards)
        if _is_empty(self._output_dir):
            os.rmdir(self._output_dir)
        local.rename(self.shards, self._output_dir)
        shutil.rmtree(self.folder)

    def close(self) -> None:
        """Releases the lock."""
        os.close(self._lock)

    def _read(self):
        path = os.path.join(self.folder, _JOURNAL)
        if not os.path.exists(path):
            return None
        journal = json.loads(files.read(path))
        if journal["fingerprint"] == self._fingerprint:
            logging.info("Resuming the conversion in %s.", self.folder)
            return journal["state"]
        logging.warning(
            "%s holds an unfinished conversion of other inputs or options; it starts "
            "over.",
            self.folder,
        )
        os.remove(path)
        return None


def finished(output_dir: str, fingerprint: str) -> dict | None:
    """Returns the manifest of this same conversion, None if there is no output yet.

    Raises:
        FileExistsError: output_dir holds something else.
    """
    if not os.path.lexists(output_dir) or _is_empty(output_dir):
        return None
    content = read_manifest(output_dir)
    if content is None or content.get("fingerprint") != fingerprint:
        other = "another conversion" if content else "other files"
        raise FileExistsError(
            f"output_dir {output_dir!r} already exists, with {other}; nothing is "
            "overwritten. Name another folder, or remove that one."
        )
    for name, entry in content["files"].items():
        path = os.path.join(output_dir, name)
        if not os.path.isfile(path) or os.path.getsize(path) != entry["bytes"]:
            raise FileExistsError(
                f"output_dir {output_dir!r} holds this conversion, but {name} is "
                "missing or was changed. Remove the folder to convert again."
            )
    # Left by a process that was killed after it had published.
    shutil.rmtree(_work_folder(output_dir), ignore_errors=True)
    return content


def _is_empty(folder):
    return os.path.isdir(folder) and not os.listdir(folder)


def _work_folder(output_dir):
    parent, name = os.path.split(os.path.abspath(output_dir))
    return os.path.join(parent, f".{name}.converting")
