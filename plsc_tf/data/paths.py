"""Folders, lists and file names on any store that `plsc_tf.storage.files` supports."""

import array
import collections
import contextlib
import glob
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import tensorflow as tf

from plsc_tf.data.image_limit import MOST_BYTES, read_image
from plsc_tf.data.source import in_python, map_rows, without_autograph
from plsc_tf.requirements import did_you_mean, listed, require
from plsc_tf.storage import files, local

# Suffix that plsc_tf.convert adds to a file's name to name its index.
INDEX_ENDING = ".index.npy"
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".gif")
_BOM = b"\xef\xbb\xbf"
# No path is longer than 4,096 bytes.
LONGEST_LINE = 1 << 16
_CHUNK_BYTES = 1 << 20
# Errors of a path, not of its store.
NO_FILE = FileNotFoundError, IsADirectoryError, PermissionError


class PathTable:
    """A list of paths, stored compactly as one bytes object plus offsets.

    A list of five million strings takes half a gigabyte; this table takes 37 bytes for
    a path of 25 characters.

    Args:
        root: folder to which the paths are relative; "" if there is none.
        paths: relative paths, as bytes.
    """

    def __init__(self, root: str, paths: Iterable[bytes]):
        text = bytearray()
        ends = array.array("q", [0])
        for path in paths:
            text += path
            ends.append(len(text))
        self._root = (root.rstrip("/") + "/" if root else "").encode()
        self._text = bytes(text)
        self._ends = np.frombuffer(ends, np.int64)
        # Sizes of files, 0 on other stores. TensorFlow must not open a path without a
        # size, -1: it would wait for the writer of a FIFO.
        self._sizes = np.full(len(self), -1 if files.is_local(root) else 0, np.int32)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> str:
        return self.path(index).decode(errors="replace")

    def read(self, indices: tf.Tensor) -> tf.Tensor:
        """Returns the contents of the files at `[n]` indices; runs inside tf.data."""

        def names_at(indices):
            for k in indices[self._sizes[indices] < 0]:
                self._sizes[k] = local.require_file(self.path(k), MOST_BYTES)
            return np.array([self.path(k) for k in indices], object)

        names = in_python(names_at, [indices], tf.string, [None])
        return map_rows(file_reader(self._root.decode()), names)

    def largest(self, indices: np.ndarray) -> int:
        """Returns the size of the largest local file at `[n]` indices, in bytes."""
        for k in indices[self._sizes[indices] < 0]:
            with contextlib.suppress(OSError, ValueError):  # `read` raises them.
                self._sizes[k] = local.require_file(self.path(k), MOST_BYTES)
        return self._sizes[indices].max()

    def contents(self) -> str:
        """Returns a digest of the relative paths; it does not depend on the root."""
        digest = hashlib.sha256(self._text)
        digest.update(memoryview(self._ends))
        return digest.hexdigest()

    def path(self, index: int) -> bytes:
        """Returns the path at an index, as bytes that may not be valid UTF-8."""
        name = self._text[self._ends[index] : self._ends[index + 1]]
        return normalized(self._root + name)


def normalized(path: bytes) -> bytes:
    """Returns the path that TensorFlow opens: without "a/..", even if `a` is a link."""
    scheme, mark, name = path.partition(b"://")
    if mark and b"/" not in scheme:  # else, a folder's name ends in a colon
        if scheme.lower() != b"file":
            return path
        path = name
    return os.path.normpath(path) if b"/.." in path else path


def file_reader(
    place: str, check: Callable[[bytes], None] | None = None
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that reads a file inside tf.data, given its path.

    Args:
        place: a path on the store of the files.
        check: function that raises ValueError if the content is invalid; with it, only
            files are opened. Without it, the caller must ensure this.
    """
    if check is None and files.opens_in_tensorflow(place):
        return tf.io.read_file

    def read(path):
        # Outside a graph, TensorFlow passes an array.
        name = path if isinstance(path, bytes) else path.item()
        try:
            content = read_image(os.fsdecode(name))
            if check is not None:
                check(content)
            return content
        except (*NO_FILE, ValueError) as error:
            raise ValueError(str(error)) from error
        except OSError as error:
            raise tf.errors.UnavailableError(None, None, str(error)) from error

    return without_autograph(lambda path: in_python(read, [path], tf.string, []))


def join(folder: str, name: str) -> str:
    """Joins folder and name with "/"; absolute names stay below the folder, too."""
    return f"{folder.rstrip('/')}/{name}" if folder not in ("", "/") else folder + name


def require_folder(folder: str, flag: str = "dataset_dir") -> str:
    """Returns the folder if it exists; otherwise raises, suggesting a similar name."""
    require(folder, f"{flag} must be set. Received: {flag}=''")
    if files.is_dir(folder):
        return folder
    rule = f"{flag} must be a folder. Received: {flag}={folder!r}, which is a file"
    require(not files.exists(folder), rule, raises=NotADirectoryError)
    parent, slash, name = folder.rstrip("/").rpartition("/")
    names = [item.rstrip("/") for item in listing(parent or slash or ".")]
    similar = did_you_mean(name, names, before=parent + slash)
    raise FileNotFoundError(
        f"{flag} {folder!r} does not exist.{similar} "
        f"Set --{flag} to the folder that holds the data set."
    )


def listing(folder: str, most: int | None = 200) -> list[str]:
    """Returns sorted names in a folder; [] if it is missing or cannot be read.

    Args:
        folder: the folder.
        most: number of entries to return; None returns all of them.

    Returns:
        Names; those of subfolders end with a slash.
    """
    try:
        names = files.list_dir(folder)[:most]
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    return [n + "/" if files.is_dir(join(folder, n)) else n for n in names]


def names_in(folder: str) -> str:
    """Returns a sentence that lists a folder's first files, for an error message."""
    return f"Found: {listed(listing(folder)) or 'nothing'}."


def no_file(folder: str, name: str, advice: str) -> FileNotFoundError:
    """Returns the error for a file that a data set lacks; lists what there is."""
    return FileNotFoundError(
        f"dataset_dir {folder!r} has no {name}. {names_in(folder)} {advice}"
    )


def read_lines(path: str, longest: int = LONGEST_LINE) -> Iterator[tuple[int, bytes]]:
    """Yields (number from 1, line without its newline) for each line of a text file.

    See `locate_lines`.
    """
    for number, _, line in locate_lines(path, longest=longest):
        yield number, line.removesuffix(b"\n")


def locate_lines(
    path: str, position: int = 0, number: int = 1, *, longest: int = LONGEST_LINE
) -> Iterator[tuple[int, int, bytes]]:
    """Yields (number, position of the next line, line) for each line of a text file.

    Uses bounded memory: a file without newlines, such as an image, is not read as a
    single line. Skips the UTF-8 byte order mark.

    Args:
        path: path of the file, on any store.
        position: position of the first line to read.
        number: number of that line, from 1.
        longest: maximum length of a line, in bytes, with its newline.

    Raises:
        ValueError: a line is too long; the message gives its number.
    """
    rest = b""
    for chunk in files.open_read(path, _CHUNK_BYTES, position):
        if position == 0 and not rest and chunk.startswith(_BOM):
            position, chunk = len(_BOM), chunk[len(_BOM) :]
        lines, rest = io.BytesIO(rest + chunk), b""
        for line in lines:
            if len(line) > longest:
                raise ValueError(
                    f"{path}, line {number}: expected a line of text of at most "
                    f"{longest} bytes. Received: {line[:60]!r}... Is it the right file?"
                )
            if not line.endswith(b"\n"):
                rest = line
                break
            position += len(line)
            yield number, position, line
            number += 1
    if rest:
        yield number, position + len(rest), rest


def read_names(path: str) -> list[str]:
    """Returns the file names in a list, which has one name per line.

    Raises:
        FileNotFoundError: the list does not exist.
        ValueError: the list is empty or not a text file.
    """
    names = [os.fsdecode(line).strip() for _, line in read_lines(path)]
    names = [name for name in names if name]
    require(names, f"{path} is empty. Expected the name of one file per line")
    return names


def expand(patterns: Iterable[str], folder: str, flag: str = "train_files"):
    """Returns the files that match names or patterns, sorted within each pattern.

    Args:
        patterns: names or patterns, looked up below `folder` first and then as given.
        folder: folder of relative names; "" if there is none.
        flag: name of the option or list, for error messages.

    Raises:
        FileNotFoundError: no file matches a pattern.
        ValueError: a file matches more than once.
    """
    expanded = []
    for pattern in patterns:
        tried = [pattern]
        if folder and not os.path.isabs(pattern) and "://" not in pattern:
            tried.insert(0, join(glob.escape(folder), pattern))
        for candidate in tried:
            matches = files.glob(candidate)
            if candidate not in matches:  # It is a pattern.
                matches = [m for m in matches if not m.endswith(INDEX_ENDING)]
            if matches:
                expanded.extend(matches)
                break
        else:
            place = f" {names_in(folder)}" if folder else ""
            raise FileNotFoundError(
                f"No file matches {pattern!r} in {flag}. "
                f"Looked for: {', '.join(tried)}.{place}"
            )
    duplicates = sorted(n for n, k in collections.Counter(expanded).items() if k > 1)
    rule = f"{flag} must list each file once, or its examples would count twice"
    require(not duplicates, rule, duplicates=duplicates[:1])
    return expanded
