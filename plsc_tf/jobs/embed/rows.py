"""Rows of a .npy file, written as they come; the file appears when all is there."""

import contextlib
import os
import tempfile

import numpy as np

from plsc_tf.storage import files


class RowsFile:
    """Writes float32 [rows, size] to a .npy file, and a name for each row.

    Rows are appended to a file with a temporary name, so that a full disk is an error
    (a mapped file would end the process) and nothing half is ever found under the
    name that was asked for. Remote files are made in the machine's own temporary
    folder and copied at the end.

    Args:
        path: of the .npy file; the names go into the .txt beside it.

    Raises:
        FileExistsError: one of the two is there already.
    """

    def __init__(self, path):
        self.path = path
        self.names_path = f"{path.removesuffix('.npy')}.txt"
        self._rows, self._size, self._header = 0, None, 0
        for taken in (self.path, self.names_path):
            if files.exists(taken):
                raise FileExistsError(
                    f"{taken} is there already, and nothing is overwritten. Give "
                    "another output, or move it away."
                )
        self._stack = contextlib.ExitStack()
        self._file = None

    def __enter__(self):
        """Makes the temporary file."""
        if files.is_local(self.path):
            folder = files.parent(self.path) or "."
            files.make_dirs(folder)
        else:
            folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        name = f".{files.name(self.path)}.{os.getpid()}.writing"
        self._temporary = os.path.join(folder, name)
        self._stack.callback(self._remove)
        self._file = self._stack.enter_context(open(self._temporary, "wb"))
        return self

    def __exit__(self, *error):
        """Removes what is left of it."""
        self._stack.close()

    def add(self, rows):
        """Appends rows: [n, size] numbers."""
        if self._size is None:
            self._size = rows.shape[1]
            self._write_header()
            self._header = self._file.tell()
        self._file.write(np.ascontiguousarray(rows, "<f4"))
        self._rows += len(rows)

    def finish(self, names):
        """Gives the files their names.

        Args:
            names: of the rows, in order.

        Raises:
            ValueError: there is no row, or a name that no list can hold.
        """
        if not self._rows:
            raise ValueError("There is no picture that can be read.")
        self._file.seek(0)
        self._write_header()
        if self._file.tell() != self._header:
            raise RuntimeError("numpy's header has changed its length.")
        self._file.flush()
        os.fsync(self._file.fileno())
        # The names come first: where the .npy is, all is there.
        files.replace(self.names_path, _names_text(names))
        if files.is_local(self.path):
            os.replace(self._temporary, self.path)
        else:
            files.make_dirs(files.parent(self.path))
            files.write(self.path, lambda: files.open_read(self._temporary))

    def _write_header(self):
        """The header has room for any number of rows."""
        np.lib.format.write_array_header_1_0(
            self._file,
            {
                "descr": "<f4",
                "fortran_order": False,
                "shape": (self._rows, self._size),
            },
        )

    def _remove(self):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._temporary)


def check_names(names):
    """Finds names that no line of a list can hold, before any work is done.

    Raises:
        ValueError: a name with a tab or the end of a line in it, or one that is not
            UTF-8.
    """
    for name in names:
        lines = f"{name}.".splitlines()
        if "\t" in name or len(lines) > 1 or _not_unicode(name):
            raise ValueError(
                f"The name of {name!r} cannot stand in a list: it must be UTF-8, "
                "without tabs and ends of lines. Rename the picture."
            )


def _not_unicode(name):
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return False


def _names_text(names):
    # A tab ends a name with blanks, as `evaluation.lists` reads it.
    lines = [f"{name}\t\n" if len(name.split()) > 1 else f"{name}\n" for name in names]
    return "".join(lines).encode()
