"""Copies folders between stores: verified, and resumed where they broke off.

A file is written under a temporary name, read back, compared, and then renamed. So a
file under its own name is whole. Manifests, which make a folder a checkpoint, come
last.
"""

import concurrent.futures
import contextlib
import dataclasses
import fnmatch
import hashlib
import json
import threading
import time

from absl import logging

from plsc_tf.progress import Progress
from plsc_tf.storage import files
from plsc_tf.storage.errors import StorageError

MANIFEST = "manifest.json"
PARTIAL = ".plsc-part"


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What a copy did.

    Attributes:
        copied: number of files written.
        skipped: number of files that were there already, and the same.
        num_bytes: bytes of the files written.
        seconds: time that it took.
    """

    copied: int
    skipped: int
    num_bytes: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class _File:
    """A file to copy; `sha256` is that of its manifest, None where none lists it."""

    name: str
    size: int
    sha256: str | None = None
    replaceable: bool = False


def upload(source_dir, target_dir, **options):
    """Copies the content of a folder to a store; see `copy_folder`."""
    return copy_folder(source_dir, target_dir, doing="Uploading", **options)


def download(source_dir, target_dir, **options):
    """Copies the content of a folder from a store; see `copy_folder`."""
    return copy_folder(source_dir, target_dir, doing="Downloading", **options)


def copy_folder(
    source_dir,
    target_dir,
    *,
    doing="Copying",
    files_at_once=3,
    replace_unlisted=False,
    skip=(),
    log_every_s=10.0,
    retry=files.RETRY,
):
    """Copies the content of a folder, with all below it, into another.

    Files that are there with the same size and SHA-256 are skipped, so the same call
    goes on with a copy that broke off. A folder's `manifest.json` says what its files
    must be, `{"files": {name: {"bytes": ..., "sha256": ...}}}`; it is copied after
    all else.

    Args:
        source_dir: folder to copy, on any store.
        target_dir: folder to copy into; made where it is missing. Other files in it
            are left.
        doing: the work in one word, for the log.
        files_at_once: files copied at the same time.
        replace_unlisted: whether a file of the target that differs is replaced if no
            manifest lists it, such as a log; it is logged.
        skip: patterns as `*.writing-*` of files and folders that are not copied.
        log_every_s: seconds between two reports of progress.
        retry: the `files.Retry` of each operation.

    Returns:
        a `Transfer`.

    Raises:
        FileNotFoundError: `source_dir` is absent.
        FileExistsError: files of the target differ; they are named and left.
        StorageError: a store failed, or a file is not what its manifest says.
    """
    begun = time.monotonic()
    found = _scan(source_dir, (*skip, f"*{PARTIAL}"), retry)
    found = _listed(source_dir, found, replace_unlisted, retry)
    progress = Progress(
        f"{doing} {source_dir} to {target_dir}",
        sum(file.size for file in found),
        "bytes",
        log_every_s,
    )
    job = _Job(source_dir, target_dir, retry, progress)
    files.make_dirs(target_dir, retry)
    job.check_sizes(found)
    manifests = [file for file in found if files.name(file.name) == MANIFEST]
    others = [file for file in found if files.name(file.name) != MANIFEST]
    with contextlib.closing(progress):
        for group in (others, manifests):
            _in_parallel(job, group, files_at_once)
    done = Transfer(
        job.copied, len(found) - job.copied, job.num_bytes, time.monotonic() - begun
    )
    logging.info(
        "%s %s to %s: done, %d files copied (%.1f MB), %d were there already, %.0f s",
        doing,
        source_dir,
        target_dir,
        done.copied,
        done.num_bytes / 1e6,
        done.skipped,
        done.seconds,
    )
    return done


def _scan(folder, skip, retry, prefix=""):
    """Returns the `_File`s below a folder, but for names that fit one of `skip`."""
    found = []
    for name in files.list_dir(folder, retry):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in skip):
            continue
        path = files.join(folder, name)
        if files.is_dir(path, retry):
            found += _scan(path, skip, retry, f"{prefix}{name}/")
        else:
            found.append(_File(prefix + name, files.size(path, retry)))
    return found


def _listed(source_dir, found, replace_unlisted, retry):
    """Returns the files with what manifests say of them.

    Raises:
        StorageError: a file is missing or has another size than its manifest says.
    """
    by_name = {file.name: file for file in found}
    listed = {}
    for name in by_name:
        if files.name(name) != MANIFEST:
            continue
        prefix = name[: -len(MANIFEST)]
        listed[name] = by_name[name]
        for other, wanted in _entries(files.join(source_dir, name), retry).items():
            file = by_name.get(prefix + other)
            if file is None or file.size != wanted["bytes"]:
                path = files.join(source_dir, prefix + other)
                there = "is no such file" if file is None else f"are {file.size}"
                raise StorageError(
                    f"{path} is damaged: the manifest says {wanted['bytes']} bytes, "
                    f"and there {there}."
                )
            listed[file.name] = dataclasses.replace(file, sha256=wanted["sha256"])
    return [
        listed.get(file.name) or dataclasses.replace(file, replaceable=replace_unlisted)
        for file in found
    ]


def _entries(path, retry):
    """Returns the "files" of a manifest, nothing if it has none."""
    try:
        entries = json.loads(files.read(path, retry=retry))["files"]
        return {
            name: {k: e[k] for k in ("bytes", "sha256")} for name, e in entries.items()
        }
    except (KeyError, TypeError, AttributeError):
        return {}  # another program's manifest
    except ValueError as error:
        raise StorageError(f"{path} is damaged: it is no JSON ({error}).") from error


class _Job:
    """One copy of a folder: what its threads share."""

    def __init__(self, source_dir, target_dir, retry, progress):
        self.source_dir = source_dir
        self.target_dir = target_dir
        self.retry = retry
        self.progress = progress
        self.stopped = threading.Event()
        self.copied = 0
        self.num_bytes = 0
        self._lock = threading.Lock()

    def check_sizes(self, found):
        """Raises before anything is written if files of the target differ in size."""
        different = []
        for file in found:
            there = self._size_there(file)
            if there not in (None, file.size) and not file.replaceable:
                different.append(f"{file.name} ({there} bytes, not {file.size})")
        if different:
            raise self._differ(different)

    def copy(self, file):
        """Copies one file, or finds it there."""
        source = files.join(self.source_dir, file.name)
        target = files.join(self.target_dir, file.name)
        there = self._size_there(file)
        if there is not None:
            if there == file.size and self._same(file, source, target):
                self.progress.add(file.size)
                return
            if not file.replaceable:
                raise self._differ([f"{file.name} (same size, other content)"])
            logging.warning("Replacing %s, which differs from %s.", target, source)
        partial = target + PARTIAL
        files.make_dirs(files.parent(target), self.retry)
        size, digest = files.write(
            partial, lambda: self._chunks(source), checksum=True, retry=self.retry
        )
        if file.sha256 and digest != file.sha256:
            files.remove(partial, self.retry)
            raise StorageError(
                f"{source} is damaged: it does not have the SHA-256 of its manifest. "
                "It was not copied."
            )
        self._verify(partial, size, digest, target)
        if there is not None:
            files.remove(target, self.retry)
        files.rename(partial, target, self.retry)
        with self._lock:
            self.copied += 1
            self.num_bytes += size
        self.progress.add(file.size)

    def _size_there(self, file):
        try:
            return files.size(files.join(self.target_dir, file.name), self.retry)
        except FileNotFoundError:
            return None

    def _same(self, file, source, target):
        """Whether two files of one size have one content."""
        wanted = file.sha256 or self._checksum(source)
        return self._checksum(target) == wanted

    def _verify(self, partial, size, digest, target):
        """Reads back what was written."""
        if files.size(partial, self.retry) == size:
            if self._checksum(partial) == digest:
                return
        files.remove(partial, self.retry)
        raise StorageError(
            f"{target} was not written: what came back from the store differs from "
            "what was sent. Call it again; if it happens again, the store or the "
            "network is broken."
        )

    def _checksum(self, path):
        digest = hashlib.sha256()
        for chunk in self._chunks(path):
            digest.update(chunk)
        return digest.hexdigest()

    def _chunks(self, path):
        for chunk in files.open_read(path, retry=self.retry):
            if self.stopped.is_set():
                raise StorageError(f"Copying {path} was stopped.")
            yield chunk

    def _differ(self, names):
        listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        return FileExistsError(
            f"{self.target_dir} has other files of the same names than "
            f"{self.source_dir}: {listed}. They were left as they are. Remove them, or "
            "name another folder."
        )


def _in_parallel(job, found, files_at_once):
    """Copies files, several at once; the first error stops the others."""
    with concurrent.futures.ThreadPoolExecutor(files_at_once) as pool:
        futures = [pool.submit(job.copy, file) for file in found]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
        except BaseException:
            job.stopped.set()
            for future in futures:
                future.cancel()
            raise
