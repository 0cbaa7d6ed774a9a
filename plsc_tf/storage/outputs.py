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
