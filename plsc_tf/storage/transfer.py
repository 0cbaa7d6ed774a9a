"""Copies folders between stores: verified, and resumable after an interruption.

A file is written under a temporary name, read back, compared, and then renamed. So a
file under its final name is complete. Manifests, which make a folder a checkpoint, come
last.
"""

import concurrent.futures
import contextlib
import dataclasses
import fnmatch
import functools
import hashlib
import json
import threading
import time
from collections.abc import Sequence

from absl import logging

from plsc_tf.progress import Progress
from plsc_tf.storage import files
from plsc_tf.storage.errors import StorageError

MANIFEST = "manifest.json"
PARTIAL = ".plsc-part"


@dataclasses.dataclass(frozen=True)
class Transfer:
    """The result of a copy.

    Attributes:
        copied: number of files written.
        skipped: number of files that already existed with the same content.
        num_bytes: bytes of the files written.
        seconds: time that it took.
    """

    copied: int
    skipped: int
    num_bytes: int
    seconds: float


def copy_folder(
    source_dir: str,
    target_dir: str,
    *,
    doing: str = "Copying",
    files_at_once: int = 3,
    replace_unlisted: bool = False,
    skip: Sequence[str] = (),
    log_every_s: float = 10.0,
    retry: files.Retry = files.RETRY,
) -> Transfer:
    """Copies the content of a folder, with everything below it, into another.

    Files that exist with the same size and SHA-256 are skipped, so the same call
    resumes an interrupted copy. A folder's `manifest.json` says what its files must
    be, `{"files": {name: {"bytes": ..., "sha256": ...}}}`; it is copied last.

    Args:
        source_dir: folder to copy, on any store.
        target_dir: folder to copy into; made if it is missing. Its other files stay.
        doing: the work in one word, for the log.
        files_at_once: files copied at the same time.
        replace_unlisted: whether a file of the target that differs is replaced if no
            manifest lists it, such as a log; it is logged.
        skip: patterns such as `*.writing-*` of files and folders that are not copied.
        log_every_s: seconds between two reports of progress.
        retry: the `files.Retry` of each operation.

    Raises:
        FileNotFoundError: `source_dir` does not exist.
        FileExistsError: files of the target differ; they are named and kept.
        StorageError: a store failed, or a file is not what its manifest says.
    """
    begun = time.monotonic()
    sizes = _sizes(source_dir, (*skip, f"*{PARTIAL}"), retry)
    hashes = _hashes(source_dir, sizes, retry)
    title = f"{doing} {source_dir} to {target_dir}"
    progress = Progress(title, sum(sizes.values()), "bytes", log_every_s)
    copier = _Copier(source_dir, target_dir, hashes, replace_unlisted, retry)
    files.make_dirs(target_dir, retry)
    copier.check_sizes(sizes)
    manifests = [name for name in sizes if files.name(name) == MANIFEST]
    others = [name for name in sizes if files.name(name) != MANIFEST]
    written = []
    with contextlib.closing(progress):
        for group in (others, manifests):
            with concurrent.futures.ThreadPoolExecutor(files_at_once) as pool:
                jobs = {
                    pool.submit(copier.copy, name, sizes[name]): name for name in group
                }
                try:
                    for job in concurrent.futures.as_completed(jobs):
                        written.append(job.result())
                        progress.add(sizes[jobs[job]])
                except BaseException:
                    copier.stopped.set()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
    written = [size for size in written if size is not None]
    seconds = time.monotonic() - begun
    done = Transfer(len(written), len(sizes) - len(written), sum(written), seconds)
    logging.info(
        "%s: done, %d files copied (%.1f MB), %d already existed, %.0f s",
        title,
        done.copied,
        done.num_bytes / 1e6,
        done.skipped,
        done.seconds,
    )
    return done


upload = functools.partial(copy_folder, doing="Uploading")
download = functools.partial(copy_folder, doing="Downloading")


def _sizes(folder, skip, retry):
    """`{path: bytes}` of the files below a folder that match none of `skip`."""
    sizes = {}
    for name in files.list_dir(folder, retry):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in skip):
            continue
        path = files.join(folder, name)
        if files.is_dir(path, retry):
            below = _sizes(path, skip, retry)
            sizes.update({f"{name}/{inner}": size for inner, size in below.items()})
        else:
            sizes[name] = files.size(path, retry)
    return sizes


def _hashes(source_dir, sizes, retry):
    """`{name: SHA-256}` of the files that manifests list; None for manifests.

    Raises:
        StorageError: a file is missing or has another size than its manifest says.
    """
    hashes = {}
    for manifest in sizes:
        if files.name(manifest) != MANIFEST:
            continue
        hashes[manifest] = None
        for inner, entry in _entries(files.join(source_dir, manifest), retry).items():
            name = manifest.removesuffix(MANIFEST) + inner
            if sizes.get(name) != entry["bytes"]:
                actual = f"has {sizes[name]}" if name in sizes else "does not exist"
                raise StorageError(
                    f"{files.join(source_dir, name)} is damaged: its manifest says "
                    f"{entry['bytes']} bytes, and the file {actual}."
                )
            hashes[name] = entry["sha256"]
    return hashes


def _entries(path, retry):
    """The "files" of a manifest of ours; nothing if it is another program's."""
    try:
        entries = json.loads(files.read(path, retry=retry))["files"]
        return {
            name: {"bytes": entry["bytes"], "sha256": entry["sha256"]}
            for name, entry in entries.items()
        }
    except (KeyError, TypeError, AttributeError):
        return {}
    except ValueError as error:
        raise StorageError(f"{path} is damaged: it is not JSON ({error}).") from error


class _Copier:
    """Copies single files of a folder, in several threads."""

    def __init__(self, source_dir, target_dir, hashes, replace_unlisted, retry):
        self._source_dir, self._target_dir = source_dir, target_dir
        self._hashes, self._replace_unlisted = hashes, replace_unlisted
        self._retry = retry
        self.stopped = threading.Event()

    def check_sizes(self, sizes):
        """Raises before anything is written if files of the target differ in size."""
        different = []
        for name, size in sizes.items():
            existing = self._target_size(name)
            if existing not in (None, size) and not self._replaceable(name):
                different.append(f"{name} ({existing} bytes, not {size})")
        if different:
            raise self._differ(different)

    def copy(self, name, size):
        """Copies a file; returns the bytes written, None if it already existed."""
        source = files.join(self._source_dir, name)
        target = files.join(self._target_dir, name)
        expected, existing = self._hashes.get(name), self._target_size(name)
        if existing == size:
            if self._digest(target) == (expected or self._digest(source)):
                return None
        if existing is not None:
            if not self._replaceable(name):
                raise self._differ([f"{name} (same size, other content)"])
            logging.warning("Replacing %s, which differs from %s.", target, source)
        partial, retry = target + PARTIAL, self._retry
        files.make_dirs(files.parent(target), retry)
        written, digest = files.write(
            partial, lambda: self._chunks(source), checksum=True, retry=retry
        )
        problem = ""
        if digest != (expected or digest):
            problem = (
                f"{source} is damaged: it does not have the SHA-256 of its manifest. "
                "It was not copied."
            )
        elif files.size(partial, retry) != written or self._digest(partial) != digest:
            problem = (
                f"{target} was not written: the store returned other bytes than it was "
                "sent. Try again; if that fails, the store or the network is broken."
            )
        if problem:
            files.remove(partial, retry)
            raise StorageError(problem)
        if existing is not None:
            files.remove(target, retry)
        files.rename(partial, target, retry)
        return written

    def _replaceable(self, name):
        return self._replace_unlisted and name not in self._hashes

    def _target_size(self, name):
        try:
            return files.size(files.join(self._target_dir, name), self._retry)
        except FileNotFoundError:
            return None

    def _digest(self, path):
        digest = hashlib.sha256()
        for chunk in self._chunks(path):
            digest.update(chunk)
        return digest.hexdigest()

    def _chunks(self, path):
        for chunk in files.open_read(path, retry=self._retry):
            if self.stopped.is_set():
                raise StorageError(f"Copying {path} was stopped.")
            yield chunk

    def _differ(self, names):
        listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        return FileExistsError(
            f"{self._target_dir} has other files of the same names than "
            f"{self._source_dir}: {listed}. They were left as they are. Remove them, "
            "or choose another folder."
        )
