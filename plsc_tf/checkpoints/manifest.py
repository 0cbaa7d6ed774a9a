"""Encodes and reads a checkpoint's description, `manifest.json`, which is written last.

See docs/checkpoint_format.md for every key.
"""

import hashlib
import json

from plsc_tf.storage import files

FORMAT = 2
NAME = "manifest.json"


class DamagedCheckpointError(ValueError):
    """Raised if a checkpoint's files differ from those that were written.

    Args:
        path: the checkpoint folder.
        problem: description of the problem, including the file's name.
    """

    def __init__(self, path: str, problem: str):
        self.path = path
        self.problem = problem
        super().__init__(f"Checkpoint {path} is damaged: {problem}.")


def encode(content: dict) -> bytes:
    """Returns the bytes of `manifest.json`: the content and its checksum."""
    # `read` computes the checksum of the parsed JSON, in which all keys are strings.
    content = json.loads(json.dumps(content))
    whole = {**content, "checksum": _checksum(content)}
    return json.dumps(whole, indent=1).encode()


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
    if not files.exists(name):
        raise FileNotFoundError(
            f"{path} is not a complete checkpoint: it has no {NAME}."
        )
    try:
        content = json.loads(files.read(name))
    except ValueError as error:
        raise DamagedCheckpointError(path, f"{NAME} is not JSON ({error})") from error
    checksum = content.pop("checksum", None) if isinstance(content, dict) else None
    if checksum is None or checksum != _checksum(content):
        raise DamagedCheckpointError(path, f"{NAME} does not match its own checksum")
    if content["format"] != FORMAT:
        raise ValueError(
            f"{path} has checkpoint format {content['format']}; this version of "
            f"plsc_tf reads format {FORMAT}. Update plsc_tf, or train again."
        )
    parts = [part for array in content["arrays"].values() for part in array["parts"]]
    entries = [content["backbone"], *filter(None, [content["training"]]), *parts]
    for name in {*content["files"], *(entry["file"] for entry in entries)}:
        # Only listed files are compared with their checksums.
        below = name.isprintable() and not {"", ".", ".."} & set(name.split("/"))
        if not below or name not in content["files"]:
            problem = f"{NAME} must list {name!r} under files, below its own folder"
            raise DamagedCheckpointError(path, problem)
    return content


def _checksum(content):
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
