"""Lists the installed versions, and compares TensorFlow's and Keras's with those tried.

`private_apis` uses functions that may change with every version; docs/versions.md lists
what was run on which.
"""

import functools
import importlib
import platform

from absl import logging

# (first, last) version that was tried, as in noxfile.py.
TRIED = {"tensorflow": ("2.17.1", "2.21"), "keras": ("3.12", "3.15")}


def installed() -> dict[str, str]:
    """Returns the versions of plsc_tf, the packages that affect numbers, and Python."""
    names = ("plsc_tf", "tensorflow", "keras", "numpy")
    found = {name: importlib.import_module(name).__version__ for name in names}
    return found | {"python": platform.python_version()}


@functools.cache
def check() -> None:
    """Warns, once, of a TensorFlow or Keras that is newer than those that were tried.

    It does not import them. Packages of other names, such as tensorflow-cpu, are not
    checked.

    Raises:
        ImportError: one is too old.
    """
    # Imported here because `--help` imports this module.
    from importlib import metadata

    from packaging.version import Version

    for package, tried in TRIED.items():
        try:
            version, first, last = map(Version, (metadata.version(package), *tried))
        except (metadata.PackageNotFoundError, TypeError):
            continue  # An interrupted installation leaves a package without a version.
        newest = f"{last.major}.{last.minor + 1}"
        if version.release < first.release:
            raise ImportError(
                f"plsc_tf needs {package} {first} or newer. Received: {package} "
                f"{version}. Run: pip install '{package}>={first},<{newest}'"
            )
        if version.release[:2] > last.release:
            logging.warning(
                f"plsc_tf was not tried with {package} {version}, only with {first} to "
                f"{last}. If it fails, run: pip install '{package}<{newest}'"
            )
