"""Tests plsc_tf on every TensorFlow that it supports: `nox`, or `nox -s core`.

`nox -s core -- tests` runs the whole suite on each of them. `nox -l` lists the
sessions, each of which has its own environment. docs/versions.md holds the results.
"""

import nox

nox.options.default_venv_backend = "uv|venv"
# The newest TensorFlow, on which the whole suite runs.
NEWEST = ("3.13", "2.21.0", "3.15.1")
# (Python, TensorFlow, Keras); TensorFlow has wheels for Python 3.13 from 2.20 on.
OTHERS = [
    ("3.11", "2.17.1", "3.15.1"),
    ("3.12", "2.17.1", "3.12.1"),
    ("3.11", "2.18.1", "3.12.1"),
    ("3.12", "2.18.1", "3.13.2"),
    ("3.11", "2.19.1", "3.13.2"),
    ("3.12", "2.19.1", "3.14.1"),
    ("3.11", "2.20.0", "3.14.1"),
    ("3.12", "2.20.0", "3.15.1"),
    ("3.13", "2.20.0", "3.14.1"),
    ("3.11", "2.21.0", "3.15.1"),
    ("3.12", "2.21.0", "3.15.1"),
]
# The tests of the core; the quick start follows.
CORE = [
    "tests/heads",
    "tests/parallel",
    "tests/checkpoints",
    "tests/conformance/test_head_matrix.py",
    "tests/conformance/test_equality.py",
    "tests/seeds/test_fastnn.py::test_the_sample_file_trains_from_oss",  # with tfio
]


def install(session, tensorflow, keras):
    """Installs plsc_tf with this TensorFlow and this Keras."""
    packages = [f"tensorflow=={tensorflow}", f"keras=={keras}"]
    extras = "dev"
    if tensorflow.startswith("2.17."):
        extras = "dev,tfio"
        # pyarrow 26 needs numpy 2. onnx 1.19 needs an ml_dtypes that TensorFlow 2.17
        # excludes, but does not say so.
        packages += ["pyarrow<26", "onnx<1.19"]
    session.install("-e", f".[{extras}]", *packages)


@nox.session(python=NEWEST[0])
def newest(session):
    """Runs the whole suite on the newest TensorFlow."""
    install(session, *NEWEST[1:])
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
@nox.parametrize("python,tensorflow,keras", OTHERS)
def core(session, tensorflow, keras):
    """Runs the tests of the core, or those that are given, and the quick start."""
    install(session, tensorflow, keras)
    session.run("python", "-m", "pytest", *(session.posargs or CORE))
    with session.chdir(session.create_tmp()):
        session.run("python", "-m", "plsc_tf.train")
