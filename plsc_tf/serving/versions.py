"""Manages version folders (1, 2, 3, ...); TensorFlow Serving serves the largest."""

import contextlib
import re

from plsc_tf.requirements import require
from plsc_tf.storage import files, local

# Without this file, a folder is not a version.
_MODEL = "saved_model.pb"
CARD = "assets.extra/model_card.json"
# Larger numbers may not fit in 64 bits.
_MOST = 10**18


def find(folder: str) -> dict[int, str]:
    """Returns {version: path} for each entry that TensorFlow Serving takes for one."""
    number = re.compile(r"\s*\+?[0-9]{1,19}\s*")
    names = filter(number.fullmatch, files.list_dir(folder))
    return {int(name): files.join(folder, name) for name in names}


def find_models(path: str, option: str = "model_dir") -> dict[int, str]:
    """Returns {version: folder} for a model's SavedModels.

    Args:
        path: folder of the version folders, a single version folder, or an ONNX file.
        option: name of the option that gave the path, for the error message.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    path = str(path).rstrip("/")
    if path.endswith(".onnx") and files.exists(path):
        return {1: path}
    if not files.is_dir(path):
        reason = "is not a folder" if files.exists(path) else "does not exist"
        raise FileNotFoundError(
            f"{option} must be the folder of an export, which contains its versions "
            f"1, 2, ... Received: {path!r}, which {reason}."
        )
    models = {number: one for number, one in find(path).items() if _may_be_model(one)}
    if _is_model(path):
        # A stranger's run could have a program beside the versions exported from it.
        rule = f"{path} must be a SavedModel or a folder of versions, and is both"
        require(not models, rule, "Name one of them", raises=FileExistsError)
        name = files.name(path)
        return {int(name) if name.isdecimal() else 1: path}
    return models


def read_card(folder: str) -> dict:
    """Returns the model card of a version; raises ValueError if it has none."""
    path = files.join(folder, CARD)
    rule = f"{folder} must be an export of plsc_tf, with {CARD} about its images"
    require(files.exists(path), rule)
    # Python parses it in one step, in which the server answers nothing.
    return files.read_json(path, 1 << 22)


def stamp(folder: str):
    """Returns what changes if another model gets a version's number; None on errors."""
    path = folder if folder.endswith(".onnx") else files.join(folder, _MODEL)
    if files.is_local(path):
        return local.version(path)
    with contextlib.suppress(OSError):
        return files.stat(path)


def _is_model(folder):
    return files.exists(files.join(folder, _MODEL))


def _may_be_model(folder):
    try:
        return _is_model(folder)
    except OSError:
        # One entry that cannot be read does not hide others; loading it says why.
        return True


def publish(temporary: str, export_dir: str) -> str:
    """Renames a finished folder inside `export_dir` to the next version number.

    Where renaming a folder is not atomic, saved_model.pb gets its name last, so that
    servers load the version only once all its files exist.

    Args:
        temporary: path of the finished folder.
        export_dir: folder of the version folders.

    Returns:
        The new path.

    Raises:
        FileExistsError: the version was created in the meantime.
        ValueError: the last version has the largest number.
    """
    number = max(find(export_dir), default=0) + 1
    rule = f"No version can follow {number - 1} in {export_dir!r}"
    require(number < _MOST, rule, "Remove it, or choose another folder")
    target = files.join(export_dir, str(number))
    held = "" if files.atomic_rename(target) else f"{_MODEL}.writing-new"
    try:
        if held:
            files.rename(files.join(temporary, _MODEL), files.join(temporary, held))
        files.rename(temporary, target)
        if held:
            files.rename(files.join(target, held), files.join(target, _MODEL))
    except FileExistsError as error:
        raise FileExistsError(
            f"Another process exported version {number} to {export_dir!r} at the same "
            "time. Export again."
        ) from error
    return target
