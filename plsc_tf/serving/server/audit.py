"""The audit log: who changed the gallery, and when."""

import datetime
import functools
import json
import os
from collections.abc import Callable


class AuditLog:
    """Appends a line of JSON to `audit.log` for each change of a gallery.

    Args:
        folder: the gallery's folder.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, folder: str):
        self._path = os.path.join(folder, "audit.log")
        self._open().close()

    def record(self, change: Callable, who: dict, person: str, *arguments) -> int:
        """Calls `change` and writes what came of it, also if it fails.

        Args:
            change: function of (person, *arguments) that returns a number of faces.
            who: the key's name and the client's address.
            person: the name of the person.
            *arguments: further arguments of the change.

        Raises:
            OSError: the file cannot be opened, and nothing changes, or not written.
        """
        with self._open() as file:
            faces, result = 0, "failed"
            try:
                faces = change(person, *arguments)
                result = "done" if faces else "unknown"
            finally:
                now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
                line = {"time": now, "action": change.__name__, **who, "person": person}
                # ASCII: a name can neither end the line nor command a terminal.
                file.write(
                    json.dumps({**line, "faces": faces, "result": result}) + "\n"
                )
        return faces

    def _open(self):
        # Open it for each line, so that it can be rotated.
        private = functools.partial(os.open, mode=0o600)
        return open(self._path, "a", encoding="ascii", opener=private)
