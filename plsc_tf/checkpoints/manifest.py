"""Encodes and reads a checkpoint's description, `manifest.json`, which is written last.

See docs/checkpoint_format.md for every key.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from plsc_tf.checkpoints import schema
from plsc_tf.requirements import require
from plsc_tf.storage import files

FORMAT = 3
# The format before it differs only in its checksums, which are SHA-256.
READABLE = (2, FORMAT)
NAME = "manifest.json"


class DamagedCheckpointError(ValueError):
    """Raised if a checkpoint's files differ from those that were written.

    Args:
        path: the checkpoint folder.
        problem: description of the problem, including the file's name.
    """

    def __init__(self, path: str, problem: str):
        self.path, self.problem = path, problem
        super().__init__(f"Checkpoint {path} is damaged: {problem}.")


@contextlib.contextmanager
def naming_damage(path: str, name: str, kinds: Any = Exception) -> Iterator[None]:
    """Raises the block's errors as `DamagedCheckpointError`s that name the file.

    HDF5, numpy and Keras raise errors of many types for files that they cannot read.

    Args:
        path: the checkpoint folder.
        name: the file, or a part of it.
        kinds: class of the errors, or a tuple of classes.
    """
    try:
        yield
    except kinds as error:
        problem = f"{name} cannot be read: {error!r:.300}"
        raise DamagedCheckpointError(path, problem) from error


def encode(content: dict) -> bytes:
    """Returns the bytes of `manifest.json`: the content and its checksum."""
    # `read` computes the checksum of the parsed JSON, in which all keys are strings.
    content = json.loads(json.dumps(content))
    return json.dumps({**content, "checksum": _checksum(content)}, indent=1).encode()


def read(path: str) -> dict:
    """Reads the manifest of a checkpoint folder.

    Args:
        path: the folder.

    Raises:
        FileNotFoundError: there is no manifest, so the folder is not a checkpoint or
            was never completed.
        DamagedCheckpointError: the manifest differs from the one that was written.
        ValueError: the checkpoint has a different format version.
    """
    name = files.join(path, NAME)
    rule = f"{path} is not a complete checkpoint: it has no {NAME}"
    require(files.exists(name), rule, raises=FileNotFoundError)
    kinds = ValueError, KeyError, TypeError, AttributeError, RecursionError
    with naming_damage(path, NAME, kinds):
        content = files.read_json(name)
        whole = content.pop("checksum") == _checksum(content)
        require(whole, "does not match its own checksum")
        if type(content["format"]) is not int or content["format"] in READABLE:
            schema.check(content)
    version = content["format"]
    rule = f"{path} must have one of the checkpoint formats {READABLE}"
    require(version in READABLE, rule, "Update plsc_tf, or train again", format=version)
    return content


def _checksum(content):
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
