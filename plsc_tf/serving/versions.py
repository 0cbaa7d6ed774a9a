"""Version folders as TensorFlow Serving reads them: 1, 2, 3, the largest is served."""

import os

from plsc_tf.storage import files


def _versions(export_dir):
    """The integers among the folder's names, which are what TF Serving looks at."""
    return {int(name) for name in files.list_dir(export_dir) if name.isdecimal()}


def prepare(export_dir, version):
    """Makes the folder, and finds what would stop an export before it costs time.

    Args:
        export_dir: folder of the version folders; created when missing.
        version: positive integer, or None for the next free one.

    Raises:
        ValueError: the version is not a positive integer.
        FileExistsError: the version is there already.
        OSError: `export_dir` is a file or cannot be created.
    """
    if version is not None and (isinstance(version, bool) or int(version) < 1):
        raise ValueError(
            "version must be a positive integer, or None for the next free one. "
            f"Received: version={version!r}."
        )
    if files.exists(export_dir) and not files.is_dir(export_dir):
        raise NotADirectoryError(
            "export_dir must be a folder, or a path where one can be made. Received: "
            f"export_dir={export_dir!r}, which is a file."
        )
    try:
        files.make_dirs(export_dir)
    except OSError as error:
        raise OSError(
            f"export_dir {export_dir!r} cannot be created: {error}"
        ) from error
    if version is not None and int(version) in _versions(export_dir):
        raise _version_exists(export_dir, version)


def _version_exists(export_dir, version):
    return FileExistsError(
        f"Version {version} exists already in {export_dir!r} and is never overwritten. "
        f"Use version={max(_versions(export_dir)) + 1}, or leave it out."
    )


def publish(temporary, export_dir, version):
    """Renames a finished folder inside `export_dir` to its version number.

    Args:
        temporary: path of the finished folder.
        export_dir: folder of the version folders.
        version: positive integer; None takes the next after the largest one there.

    Returns:
        The new path.

    Raises:
        FileExistsError: the version has appeared in the meantime.
    """
    if version is None:
        version = max(_versions(export_dir), default=0) + 1
    target = os.path.join(export_dir, str(int(version)))
    try:
        files.rename(temporary, target)
    except FileExistsError as error:
        raise _version_exists(export_dir, version) from error
    return target
