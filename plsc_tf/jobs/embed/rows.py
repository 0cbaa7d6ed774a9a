"""Rows of a .npy file, written as they come; the file appears when it is complete."""

import os
import tempfile
from collections.abc import Iterable

import numpy as np

from plsc_tf.storage import files


class RowsFile:
    """Writes float32 [rows, size] to a .npy file, and a name for each row.

    Rows are appended to a file with a temporary name, so that a full disk is an error
    (a mapped file would end the process) and half a file never has the final name.
    Remote files are made in the machine's temporary folder and copied at the end.

    Args:
        path: of the .npy file; the names go into a .txt of the same name.

    Attributes:
        path, names_path: of the two files.
        shape: (rows, size) so far.

    Raises:
        FileExistsError: one of the two exists.
    """

    def __init__(self, path: str):
        self.path = path
        self.names_path = f"{path.removesuffix('.npy')}.txt"
        self.shape = (0, 0)
        for existing in (self.path, self.names_path):
            if files.exists(existing):
                raise FileExistsError(f"{existing} exists already. Set another output.")

    def __enter__(self):
        """Makes a temporary folder, next to a local output."""
        folder = None
        if files.is_local(self.path):
            folder = files.parent(self.path) or "."
            files.make_dirs(folder)
        self._folder = tempfile.TemporaryDirectory(
            prefix=f".{files.name(self.path)}.", dir=folder
        )
        self._temporary = os.path.join(self._folder.name, "rows.npy")
        self._file = open(self._temporary, "wb")  # noqa: SIM115 - closed by `__exit__`
        return self

    def __exit__(self, *error):
        """Removes what is left in the temporary folder."""
        self._file.close()
        self._folder.cleanup()

    def add(self, rows: np.ndarray) -> None:
        """Appends rows: [n, size] numbers."""
        count, _ = self.shape
        self.shape = (count + len(rows), rows.shape[1])
        if not count:
            self._write_header()
        self._file.write(np.ascontiguousarray(rows, "<f4"))

    def finish(self, names: Iterable[str]) -> None:
        """Gives the files their names.

        Args:
            names: of the rows, in order.

        Raises:
            ValueError: there is no row.
        """
        if not self.shape[0]:
            raise ValueError("There is no image that can be read.")
        self._file.seek(0)
        self._write_header()  # as long as before: it has room for any number of rows
        self._file.flush()
        os.fsync(self._file.fileno())
        # A tab ends a name with blanks, as `evaluation.lists` reads it.
        lines = [
            f"{name}\t\n" if len(name.split()) > 1 else f"{name}\n" for name in names
        ]
        # The names come first: if the .npy exists, both are complete.
        files.replace(self.names_path, "".join(lines).encode())
        if files.is_local(self.path):
            os.replace(self._temporary, self.path)
        else:
            files.make_dirs(files.parent(self.path))
            files.write(self.path, lambda: files.open_read(self._temporary))

    def _write_header(self):
        header = {"descr": "<f4", "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(self._file, header)


def check_names(names: Iterable[str]) -> None:
    """Finds names that no line of a list can hold, before any work is done.

    Raises:
        ValueError: a name with a tab or the end of a line in it, or one that is not
            UTF-8.
    """
    for name in names:
        one_line = len(f"{name}.".splitlines()) == 1 and "\t" not in name
        if not one_line or name.encode(errors="replace").decode() != name:
            raise ValueError(
                f"The name {name!r} cannot be in a list: it must be UTF-8, without "
                "tabs and ends of lines. Rename the image."
            )
