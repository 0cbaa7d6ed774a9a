"""Compares the installed TensorFlow, Keras and numpy with those that were tried.

`private_apis` uses functions that may change with every version; docs/versions.md lists
what was run on which.
"""

import functools

from absl import logging

# (first, last) version that was tried, as in noxfile.py.
TRIED = {"tensorflow": ("2.17", "2.21"), "keras": ("3.12", "3.15")}


@functools.cache
def check() -> None:
    """Warns, once, of a TensorFlow or Keras that is newer than those that were tried.

    It does not import them. Packages of other names, such as tensorflow-cpu, are not
    checked.

    Raises:
        ImportError: one is too old, or TensorFlow does not load with this numpy.
    """
    for package, (first, last) in TRIED.items():
        version = _version(package)
        newest = _next(last)
        if version and _numbers(version) < _numbers(first):
            raise ImportError(
                f"plsc_tf needs {package} {first} or newer. Received: {package} "
                f"{version}. Run: pip install '{package}>={first},<{newest}'"
            )
        if version and _numbers(version) >= _numbers(newest):
            logging.warning(
                "plsc_tf was not tried with %s %s, only with %s to %s. If it fails, "
                "run: pip install '%s<%s'",
                *(package, version, first, last, package, newest),
            )
    tensorflow, numpy = _version("tensorflow"), _version("numpy")
    if (
        tensorflow
        and numpy
        and _numbers(tensorflow) < (2, 18)
        and _numbers(numpy) >= (2, 0)
    ):
        raise ImportError(
            f"TensorFlow {tensorflow} needs numpy 1. Received: numpy {numpy}. Run: "
            "pip install 'numpy<2', or install TensorFlow 2.18 or newer."
        )


def _version(package):
    """Returns the version of an installed package, or None."""
    # Imported here, and below, because `--help` imports this module.
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version):
    """Returns (major, minor) of a version."""
    from packaging.version import Version

    return Version(version).release[:2]


def _next(version):
    """Returns the minor version after `major.minor`."""
    major, minor = _numbers(version)
    return f"{major}.{minor + 1}"
