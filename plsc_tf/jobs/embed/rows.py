"""Writes a .npy file row by row; the file appears only when it is complete."""

import os
import tempfile
from collections.abc import Iterable

import numpy as np

from plsc_tf.requirements import require
from plsc_tf.storage import files, outputs


class RowsFile:
    """Writes float32 `[rows, size]` to a .npy file, and the rows' names to a .txt file.

    Rows are appended to a temporary file, so an incomplete file never has the final
    name. The file is not memory-mapped because a full disk would then kill the process
    instead of raising an error. Remote files are written to the machine's temporary
    folder and copied at the end.

    Args:
        path: path of the .npy file; the .txt file has the same name.

    Attributes:
        path: path of the .npy file.
        names_path: path of the .txt file.
        shape: (rows, size) written so far.

    Raises:
        FileExistsError: one of the two files already exists.
    """

    def __init__(self, path: str):
        self.path = path
        self.names_path = f"{path.removesuffix('.npy')}.txt"
        self.shape = (0, 0)
        for existing in (self.path, self.names_path):
            outputs.require_absent(existing)

    def __enter__(self):
        """Creates a temporary folder, next to the output if that is local."""
        folder = None
        if files.is_local(self.path):
            folder = files.parent(self.path) or "."
            files.make_dirs(folder)
        prefix = f".{files.name(self.path)}."
        self._folder = tempfile.TemporaryDirectory(prefix=prefix, dir=folder)
        self._temporary = os.path.join(self._folder.name, "rows.npy")
        self._file = open(self._temporary, "wb")  # noqa: SIM115 - closed by `__exit__`
        return self

    def __exit__(self, *error):
        """Removes the temporary folder."""
        self._file.close()
        self._folder.cleanup()

    def add(self, rows: np.ndarray) -> None:
        """Appends rows `[n, size]`."""
        count, _ = self.shape
        self.shape = (count + len(rows), rows.shape[1])
        if not count:
            self._write_header()
        self._file.write(np.ascontiguousarray(rows, "<f4"))

    def finish(self, names: Iterable[str]) -> None:
        """Completes both files under their final names.

        Args:
            names: the rows' names, in order.

        Raises:
            ValueError: no rows were added.
        """
        require(self.shape[0], "None of the images could be read")
        self._file.seek(0)
        self._write_header()  # as long as before: NumPy pads the row count
        self._file.flush()
        os.fsync(self._file.fileno())
        # `evaluation.lists` expects a tab after a name that contains spaces.
        lines = [f"{n}\t\n" if len(n.split()) > 1 else f"{n}\n" for n in names]
        # Write the names first, so an existing .npy file means that both are complete.
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
    """Checks that every name can be a line of a list, before any work is done.

    Raises:
        ValueError: a name contains a tab or a newline, or is not valid UTF-8.
    """
    for name in names:
        one_line = len(f"{name}.".splitlines()) == 1 and "\t" not in name
        fits = one_line and name.encode(errors="replace").decode() == name
        rule = f"Rename {name!r}: names must be UTF-8 without tabs and line breaks"
        require(fits, rule)
