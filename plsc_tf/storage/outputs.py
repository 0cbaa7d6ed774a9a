"""Checks a file or folder that a command is about to write."""

import os
import re

from plsc_tf.requirements import require
from plsc_tf.storage import files, local
from plsc_tf.storage.paths import local_path

# W&B puts links of this name, to a log in the user's cache, into the folder of a run.
# They are not followed: a stranger's run could have one to any file.
WANDB_LOG = "debug-core.log"
_WANDB_LINK = re.compile(rf".*/wandb/[^/]+/logs/{re.escape(WANDB_LOG)}").fullmatch


def require_absent(path: str, option: str = "") -> None:
    """Raises a FileExistsError if something exists at the path.

    Args:
        path: the file or folder.
        option: name of the option that gave the path, for the message.
    """
    given = f"{option}={path!r}" if option else repr(path)
    rule = f"{given} already exists and is not overwritten"
    advice = "Choose another name, or move it"
    require(not files.exists(path), rule, advice, raises=FileExistsError)


def require_own(folder: str) -> None:
    """Raises a ValueError if a folder is another user's, or is or has a link."""
    place = os.path.abspath(local_path(folder))
    own = not os.path.lexists(place) or os.lstat(place).st_uid in (0, os.geteuid())
    require(own, f"{folder!r} is another user's. Choose another folder, or remove it")
    links = _links(folder)
    require(not links, f"{folder!r} must not have links. Remove them", links=links[:3])


def require_closed(folder: str, allow_siblings: bool = False) -> None:
    """Raises a ValueError if a link in a folder leads out of it.

    An archive could bring it along, and make this process read or write elsewhere.

    Args:
        folder: the folder.
        allow_siblings: whether links, and the folder itself, may lead to its siblings.
    """
    place = os.path.abspath(local_path(folder))
    root = os.path.realpath(os.path.dirname(place) if allow_siblings else place)
    links = [k for k in _links(folder) if os.path.isdir(k) or not _WANDB_LINK(k)]
    targets = {link: os.path.realpath(link) for link in links}
    out = [k for k, v in targets.items() if os.path.commonpath([root, v]) != root]
    require(not out, f"Links must not lead out of {root!r}. Remove them", links=out[:3])


def _links(folder):
    """Returns the paths of all links in a folder, with its own if it is one.

    Raises:
        OSError: a folder cannot be listed, which could hide links.
    """
    # With a trailing slash, `islink` would look at the target.
    folder = os.path.abspath(local_path(folder))
    found = [folder]
    tree = os.walk(folder, onerror=_raise) if os.path.isdir(folder) else ()
    for place, folders, names in tree:
        found += [os.path.join(place, name) for name in folders + names]
    return list(filter(os.path.islink, found))


def _raise(error):
    raise error


def mark(folder: str) -> list[int]:
    """Identifies a local folder; neither a copy nor an archive can have the same mark.

    The mark is the `local.version` of an empty file, which is created if missing. It
    includes the time of creation in nanoseconds, which cannot be forged.

    Raises:
        ValueError: see `require_own`.
    """
    require_own(folder)
    path = os.path.join(folder, ".begun")
    open(path, "ab", opener=local.without_links).close()
    return list(local.version(path))


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
    temporary = files.temporary_name(path)
    files.write(temporary, chunks)
    files.rename(temporary, path)
