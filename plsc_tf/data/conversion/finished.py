"""Telling a conversion from others, and whether it was done before."""

from __future__ import annotations

import hashlib
import json
import os
import shutil

import numpy as np
from absl import logging

from plsc_tf.data.conversion import manifest
from plsc_tf.data.conversion.work import work_folder

# Of another order: what was begun by an older version must not be gone on with.
_VERSION = 1


def fingerprint(source, plan) -> str:
    """What tells a conversion from others: input, options, and how orders are made."""
    told = {
        "version": _VERSION,
        "numpy": np.__version__,
        "source": source.fingerprint(),
        "plan": plan.result(),
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def look_for(output_dir: str, fingerprint: str) -> dict | None:
    """Returns the manifest of this same conversion, None where nothing is there yet.

    Raises:
        FileExistsError: there is something else.
    """
    if not os.path.lexists(output_dir):
        return None
    if os.path.isdir(output_dir) and not os.listdir(output_dir):
        return None
    found = manifest.read(output_dir)
    if found is None or found.get("fingerprint") != fingerprint:
        what = "another conversion" if found else "other files"
        raise FileExistsError(
            f"output_dir {output_dir!r} is there already, with {what}; nothing is "
            "overwritten. Name another folder, or remove that one."
        )
    _check_files(output_dir, found)
    if os.path.isdir(work_folder(output_dir)):
        _remove_leftover(output_dir)
    return found


def _check_files(output_dir, found):
    for name, entry in found["files"].items():
        path = os.path.join(output_dir, name)
        if not os.path.isfile(path) or os.path.getsize(path) != entry["bytes"]:
            raise FileExistsError(
                f"output_dir {output_dir!r} holds this conversion, but {name} is "
                "missing or was changed. Remove the folder to convert again."
            )


def _remove_leftover(output_dir):
    """Removes the work of a process that was killed after it had published."""
    logging.info("Removing %s, which is not needed any more.", work_folder(output_dir))
    shutil.rmtree(work_folder(output_dir), ignore_errors=True)
