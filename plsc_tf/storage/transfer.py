"""Copies folders between stores; verifies files and can resume after interruptions.

A file is written under a temporary name, read back, compared, and then renamed.
Therefore, a file under its final name is complete. Manifests, which make a folder a
checkpoint, are copied last.
"""

import concurrent.futures
import fnmatch
import functools
import os
import tempfile
from collections.abc import Sequence

from absl import logging

from plsc_tf.progress import Progress
from plsc_tf.requirements import require
from plsc_tf.storage import checksums, files, local, outputs

MANIFEST, PARTIAL = "manifest.json", ".plsc-part"
FILES_AT_ONCE = 3


def copy_folder(
    source_dir: str,
    target_dir: str,
    *,
    doing: str = "Copying",
    replace_unlisted: bool = False,
    skip: Sequence[str] = (),
) -> int:
    """Copies a folder's contents, including subfolders, to another folder.

    Files that already exist with the same size and checksum are skipped, so repeating
    the call resumes an interrupted copy. If a folder contains a `manifest.json`, its
    files must match it, `{"files": {name: entry}}`, see `checksums`; the manifest is
    copied last.

    Args:
        source_dir: folder to copy, on any store.
        target_dir: folder to copy to; created if missing. Its other files are kept.
        doing: a word that describes the operation in the log.
        replace_unlisted: whether to replace a differing target file that no manifest
            lists, such as a log; each replacement is logged.
        skip: name patterns such as `*.writing-*` of files and folders that are not
            copied.

    Returns:
        the number of files written.

    Raises:
        FileNotFoundError: `source_dir` does not exist.
        ValueError: a link in one of the folders leads out of it.
        FileExistsError: a target file differs; the message names it, and it is kept.
        StorageError: a store failed, or a file does not match its manifest.
    """
    for folder in (source_dir, target_dir):
        outputs.require_closed(folder)
    sizes = _sizes(source_dir, (*skip, f"*{PARTIAL}", outputs.WANDB_LOG))
    entries = _listed(source_dir, sizes)
    title = f"{doing} {source_dir} to {target_dir}"
    progress = Progress(title, sum(sizes.values()), "bytes")
    files.make_dirs(target_dir)

    def copy(name):
        source, target = files.join(source_dir, name), files.join(target_dir, name)
        replace = replace_unlisted and name not in entries
        written = _copy(source, target, sizes[name], entries.get(name), replace)
        progress.add(sizes[name])
        return written

    written: list[int | None] = []
    with progress:
        for last in (False, True):
            names = [name for name in sizes if (files.name(name) == MANIFEST) == last]
            with concurrent.futures.ThreadPoolExecutor(FILES_AT_ONCE) as pool:
                written += pool.map(copy, names)
    new = [size for size in written if size is not None]
    copied = f"{len(new)} files copied ({sum(new) / 1e6:.1f} MB)"
    existed = f"{len(sizes) - len(new)} already existed"
    logging.info("%s: done, %s, %s", title, copied, existed)
    return len(new)


class LocalFolder:
    """A folder in which TensorFlow itself can read and write, for one on any store.

    Args:
        folder: the folder.
        temporary: whether `path` is temporary in any case: TensorFlow writes through
            links.

    Attributes:
        path: `folder`, or a temporary one if that is on another store, where TensorFlow
            might wait forever. It is removed with this object.
    """

    def __init__(self, folder: str, temporary: bool = False):
        self._folder, self.path = folder, folder
        self._uploaded: dict[str, int] = {}
        if temporary or not files.is_local(folder):
            self._temporary = tempfile.TemporaryDirectory(prefix="plsc_tf-")
            self.path = self._temporary.name

    def downloaded(self) -> str:
        """Returns `path`, which holds the folder's files, and nothing but files.

        TensorFlow would open a FIFO, and with it hold Python's lock forever.
        """
        if self.path != self._folder:
            download(self._folder, self.path)
        for place, _, names in files.walk(self.path):
            for name in names:
                local.require_file(os.path.join(place, name))
        return self.path

    def upload(self) -> None:
        """Copies the files that are new or have another size to the folder."""
        if self.path == self._folder:
            return
        for name, size in _sizes(self.path, ()).items():
            if self._uploaded.get(name) != size:
                source = os.path.join(self.path, name)
                target = files.join(self._folder, name)
                files.make_dirs(files.parent(target))
                files.write(target, functools.partial(files.open_read, source))
                self._uploaded[name] = size


upload = functools.partial(copy_folder, doing="Uploading")
download = functools.partial(copy_folder, doing="Downloading")


def _sizes(folder, skip):
    """Returns `{relative path: size}` for the files in a folder that `skip` allows."""

    def allowed(names):
        return [n for n in names if not any(fnmatch.fnmatchcase(n, p) for p in skip)]

    sizes, folder = {}, os.fspath(folder)
    for place, folders, names in files.walk(folder):
        folders[:] = allowed(folders)
        for path in [files.join(place, name) for name in allowed(names)]:
            sizes[path.removeprefix(folder).lstrip("/")] = files.size(path)
    return sizes


def _listed(source_dir, sizes):
    """Returns `{name: entry}` for files that manifests list; None for manifests.

    Raises:
        StorageError: a file is missing, or its size differs from its manifest.
    """
    listed = {}
    for manifest in [name for name in sizes if files.name(name) == MANIFEST]:
        listed[manifest] = None
        for inner, entry in _entries(files.join(source_dir, manifest)).items():
            name = manifest.removesuffix(MANIFEST) + inner
            if sizes.get(name) != entry["bytes"]:
                actual = f"has {sizes[name]}" if name in sizes else "does not exist"
                raise files.StorageError(
                    f"{files.join(source_dir, name)} is damaged: its manifest says "
                    f"{entry['bytes']} bytes, but the file {actual}."
                )
            listed[name] = entry
    return listed


def _entries(path):
    """Returns the "files" entry of our manifest; {} for another program's manifest."""
    try:
        entries = files.read_json(path)["files"]
        keys = ("bytes", checksums.algorithm_of(entries))
        return {name: {key: entries[name][key] for key in keys} for name in entries}
    except (KeyError, TypeError, AttributeError):
        return {}
    except (ValueError, RecursionError) as error:
        raise files.StorageError(f"{path} is damaged: {error!r:.300}.") from error


def _copy(source, target, size, expected, replace):
    """Copies a file; returns the bytes written, or None if it already existed."""
    algorithm = checksums.DEFAULT
    if expected:
        algorithm = checksums.algorithm_of({source: expected})
    existing = files.size(target) if files.exists(target) else None
    if existing == size:
        if files.checksum(target, algorithm) == (expected or files.checksum(source)):
            return None
    rule = f"{target} differs from {source}. It was not overwritten"
    advice = "Remove it, or choose another folder"
    require(existing is None or replace, rule, advice, raises=FileExistsError)
    partial = target + PARTIAL
    files.make_dirs(files.parent(target))
    chunks = functools.partial(files.open_read, source)
    written = files.write(partial, chunks, algorithm=algorithm)
    problem = ""
    if written != (expected or written):
        problem = (
            f"{source} is damaged: it does not have the checksum that its manifest "
            "gives. It was not copied."
        )
    elif files.checksum(partial, algorithm) != written:
        problem = (
            f"{target} was not written: the store returned other bytes than it was "
            "sent. Try again; if that fails, the store or the network is broken."
        )
    if problem:
        files.remove(partial)
        raise files.StorageError(problem)
    if existing is not None:
        logging.warning("Replacing %s, which differs from %s.", target, source)
        files.remove(target)
    files.rename(partial, target)
    return written["bytes"]
