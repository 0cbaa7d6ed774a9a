"""The audit log: who changed the gallery, and when."""

import datetime
import json
import os
from collections.abc import Callable


def open_log(folder: str):
    """Opens the log in a gallery's folder to append to it, for each line anew.

    So it can be rotated. Raises OSError if it cannot be written.
    """
    return open(os.path.join(folder, "audit.log"), "ab+", opener=_private)


def _private(path, flags):
    file = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    os.fchmod(file, 0o600)  # a backup or a rotation may have made it readable
    return file


def record(folder: str, change: Callable, who: dict, person: str, *arguments) -> int:
    """Calls `change` and writes a line of JSON about what came of it, even if it fails.

    Args:
        folder: the gallery's folder.
        change: function of (person, *arguments) that returns a number of faces.
        who: the key's name and the client's address.
        person: the name of the person.
        *arguments: further arguments of the change.

    Raises:
        OSError: the file cannot be opened, and nothing changes, or not written.
    """
    with open_log(folder) as file:
        # A full disk may have cut the last line off.
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        is_torn, faces, result = file.read() not in b"\n", 0, "failed"
        try:
            faces = change(person, *arguments)
            result = "done" if faces else "unknown"
        finally:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            line = {"time": now, "action": change.__name__, **who, "person": person}
            # ASCII: a name can neither end the line nor command a terminal.
            text = json.dumps({**line, "faces": faces, "result": result})
            file.write(b"\n" * is_torn + text.encode() + b"\n")
    return faces
