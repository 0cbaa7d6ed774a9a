"""Checks a file or folder that a command is about to write."""

from plsc_tf.storage import files


def require_absent(path: str, option: str = "") -> None:
    """Raises a FileExistsError if something exists at the path.

    Args:
        path: the file or folder.
        option: name of the option that gave the path, for the message.
    """
    if files.exists(path):
        given = f"{option}={path!r}" if option else repr(path)
        raise FileExistsError(
            f"{given} already exists and is not overwritten. Choose another name, or "
            "move it."
        )


def create(path: str, chunks) -> None:
    """Writes a file, which appears when it is complete, unless one has appeared there.

    Args:
        path: the file.
        chunks: as for `files.write`.

    Raises:
        FileExistsError: something exists at the path; the new file keeps its temporary
            name beside it.
        OSError: as for `files.write`.
    """
    temporary = f"{path}.writing-new"
    files.write(temporary, chunks)
    files.rename(temporary, path)
