"""Compares the installed TensorFlow and Keras with those that were tried.

`private_apis` uses functions that may change with every version; docs/versions.md lists
what was run on which.
"""

import functools

from absl import logging

# (first, last) version that was tried, as in noxfile.py.
TRIED = {"tensorflow": ("2.17.1", "2.21"), "keras": ("3.12", "3.15")}


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
                "plsc_tf was not tried with %s %s, only with %s to %s. If it fails, "
                "run: pip install '%s<%s'",
                *(package, version, first, last, package, newest),
            )
