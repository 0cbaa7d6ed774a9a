"""The description of a checkpoint: `manifest.json`, written last.

docs/checkpoint_format.md describes every key.
"""

import hashlib
import json

from plsc_tf.storage import files

FORMAT = 2
NAME = "manifest.json"
# Keys that every manifest has, and what they hold.
KEYS = {
    "format": int,
    "kind": str,
    "versions": dict,
    "state": dict,
    "backbone": dict,
    "training": dict,
    "arrays": dict,
    "files": dict,
}


class DamagedCheckpointError(ValueError):
    """A checkpoint whose files differ from those that were written.

    Args:
        path: the checkpoint folder.
        problem: what is wrong with which file.
    """

    def __init__(self, path, problem):
        self.path = path
        self.problem = problem
        super().__init__(f"Checkpoint {path} is damaged: {problem}.")


def encode(content):
    """The bytes of `manifest.json`: the content and its own checksum.

    Args:
        content: dict with the keys of `KEYS`.
    """
    content = json.loads(json.dumps(content))  # as it will be read, numbers as keys too
    whole = {**content, "checksum": _checksum(content)}
    return json.dumps(whole, indent=1).encode()


def read(path):
    """The manifest of a checkpoint folder.

    Args:
        path: the folder.

    Raises:
        FileNotFoundError: there is none: not a checkpoint, or one that was never
            completed.
        DamagedCheckpointError: the manifest is not as it was written.
        ValueError: another version of the format.
    """
    name = files.join(path, NAME)
    if not files.exists(name):
        raise FileNotFoundError(
            f"{path} is not a complete checkpoint: it has no {NAME}."
        )
    try:
        content = json.loads(files.read(name))
    except ValueError as error:
        raise DamagedCheckpointError(path, f"{NAME} is not JSON ({error})") from error
    if isinstance(content, dict) and content.get("format") == 1:
        raise ValueError(
            f"{path} has checkpoint format 1, of before the first release; this "
            f"version of plsc_tf reads format {FORMAT}. Train anew."
        )
    _check(path, content)
    return content


def _check(path, content):
    if not isinstance(content, dict) or "checksum" not in content:
        raise DamagedCheckpointError(path, f"{NAME} has no checksum of its own")
    checksum = content.pop("checksum")
    if checksum != _checksum(content):
        raise DamagedCheckpointError(path, f"{NAME} does not have its own checksum")
    if content.get("format") != FORMAT:
        raise ValueError(
            f"{path} has checkpoint format {content.get('format')}; this version of "
            f"plsc_tf reads format {FORMAT}. Update plsc_tf."
        )
    for key, kind in KEYS.items():
        if not isinstance(content.get(key), kind):
            raise DamagedCheckpointError(path, f"{NAME} has no {key}")


def _checksum(content):
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
