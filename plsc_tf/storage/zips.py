"""Reads members of zip archives: implements `plsc_tf.storage.files` for `zip://`.

`zip://photos.zip/cat/1.jpg` is the member cat/1.jpg of photos.zip, on a local disk.
"""

import bisect
import functools
import io
import os
import re
import stat as modes
import zipfile
import zlib

from plsc_tf.requirements import prefix_errors, require
from plsc_tf.storage import local, paths

_ADDRESS = re.compile(r"zip://(.*?\.zip)(?:/(.*))?", re.IGNORECASE | re.DOTALL)
# Most bytes of the directory, of which zipfile makes objects of up to 16 times as many:
# with them, also a third of the archive, as that of small images has a quarter.
_LONGEST_DIRECTORY, _SHORT_DIRECTORY = 1 << 26, 1 << 20
# Most bytes of a member, which may also have at most this many times its packed bytes
# (a list of images has 13 times), and this many more; and folders in a name.
_LONGEST, _MOST_TIMES, _MOST_MORE, _MOST_FOLDERS = 1 << 28, 32, 1 << 16, 100
_DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError)


def address(path: str) -> str:
    """Returns the address of a local zip archive; other paths as they are."""
    is_zip = path.lower().endswith(".zip") and os.path.isfile(path)
    return f"zip://{path}" if is_zip else path


def stat(path, _):
    """See `local.stat`."""
    archive, name = _find(path)
    if member := archive.NameToInfo.get(name):
        # No time in nanoseconds, but larger for later ones.
        time = int("".join(f"{part:02}" for part in member.date_time))
        return paths.FileStat(False, member.file_size, time)
    is_dir = not name or any(True for _ in archive.names_in(name))
    return paths.FileStat(True, 0, 0) if is_dir else None


def list_dir(path, _):
    """Returns the names in a folder, which must exist."""
    archive, name = _find(path)
    return set(archive.names_in(name)) - {""}


class RandomReader:
    """Reads parts of a member, which must exist and is unpacked as a whole."""

    def __init__(self, path, _):
        archive, name = _find(path)
        advice = "Copy the archive again"
        with prefix_errors(f"{path} is damaged", *_DAMAGES, advice=advice):
            member = archive.getinfo(name)
            with archive.open(member) as file:
                # Without a number, it would unpack more than the size that was checked.
                self._content = file.read(member.file_size)

    def read(self, start, length):
        """See `local.RandomReader.read`."""
        return self._content[start : start + length]

    def close(self):
        """Does nothing."""


def _find(path):
    """Returns (the `_Archive`, the name of a member or folder)."""
    parts = _ADDRESS.fullmatch(path)
    require(parts, "Expected zip://<archive>.zip/<name>", path=path)
    archive, name = parts.groups("")
    return _open(archive, os.stat(archive).st_mtime_ns), name.strip("/")


@functools.lru_cache(4)
def _open(path, _):
    local.require_file(path)
    problem = f"{path} is no zip archive that plsc_tf reads"
    with prefix_errors(problem, *_DAMAGES, advice="Copy or write it again"):
        return _Archive(_File(path))


class _File(io.FileIO):
    """An archive whose directory is checked before zipfile makes objects of it."""

    def __init__(self, path):
        super().__init__(path)
        self.bytes = os.fstat(self.fileno()).st_size
        self.most = min(_LONGEST_DIRECTORY, self.bytes // 3 + _SHORT_DIRECTORY)

    def read(self, size=-1):
        require(size <= self.most, f"its directory has more than {self.most:,} bytes")
        return super().read(size)


class _Archive(zipfile.ZipFile):
    """A zip archive, whose sorted names tell what is in a folder."""

    def __init__(self, file):
        super().__init__(file)
        file.most = _LONGEST
        for member in self.infolist():
            _check(member)
        # The directory may claim more bytes than there are.
        packed = min(file.bytes, sum(one.compress_size for one in self.infolist()))
        # Readers of packed images keep many members open, and thus in memory.
        most = 4 * packed + _LONGEST
        size = sum(member.file_size for member in self.infolist())
        require(size <= most, f"its members unpack to more than {most:,} bytes")
        self._names = sorted(self.NameToInfo)

    def names_in(self, folder):
        """Yields the names in a folder, some twice; "" if it has an entry itself."""
        prefix = f"{folder}/" if folder else ""
        place = bisect.bisect_left(self._names, prefix)
        while place < len(self._names) and self._names[place].startswith(prefix):
            name, is_folder, _ = self._names[place][len(prefix) :].partition("/")
            yield name
            place += 1
            if is_folder:  # "0" follows "/", so this skips what is in it
                place = bisect.bisect_left(self._names, f"{prefix}{name}0", place)


def _check(member):
    """Raises ValueError unless a member can be read safely."""
    name, methods = member.filename, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    most = min(_LONGEST, _MOST_TIMES * member.compress_size + _MOST_MORE)
    faults = {
        # Each folder of a name costs a step of its own; 4,096 are Linux's bytes.
        "has too long a name": len(name) > 4096 or name.count("/") > _MOST_FOLDERS,
        "is a link": modes.S_ISLNK(member.external_attr >> 16),
        "leads outside, or has '//'": paths.leads_outside(name) or "//" in name,
        "is encrypted": member.flag_bits & 1,
        "is neither stored nor deflated": member.compress_type not in methods,
        f"unpacks to more than {most:,} bytes": member.file_size > most,
    }
    for fault, found in faults.items():
        require(not found, f"{name[:200]!r} {fault}")
