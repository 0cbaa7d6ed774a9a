"""Packaging of plsc_tf: metadata, dependencies and the three re-mapped folders.

The same sources give a wheel and an sdist of the same bytes: files in them have the
date SOURCE_DATE_EPOCH or, if it is not set, the first that a wheel can hold.
"""

import gzip
import os
import pathlib
import re
import runpy
import tarfile

from setuptools import find_packages, setup
from setuptools.command.sdist import sdist

ROOT = pathlib.Path(__file__).parent
EPOCH = int(os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800"))
VERSION = re.search(
    r'^__version__ = "(.+)"$',
    (ROOT / "plsc_tf/__init__.py").read_text(encoding="utf-8"),
    re.MULTILINE,
).group(1)

# `flags/`, `datasets/` and `hparams/` stand at the top level of the repository but are
# installed inside the package, because top-level packages of these names would
# shadow other people's (HuggingFace has a `datasets`).
REMAPPED = {
    "plsc_tf.flags": "flags",
    "plsc_tf.datasets": "datasets",
    "plsc_tf.hparams": "hparams",
}

COMMANDS = runpy.run_path(str(ROOT / "plsc_tf/__main__.py"))["COMMANDS"]
# plsc-train, ..., plsc-import-checkpoint.
SCRIPTS = [
    f"plsc-{name.replace('_', '-')} = plsc_tf.__main__:script" for name in COMMANDS
]

SERVING = [
    # Earlier versions keep any number of requests of a connection in memory.
    "aiohttp>=3.14.5,<4",
    # Earlier versions may unpack a message beyond the limit before they refuse it.
    # The server replaces private methods, which later versions may not have.
    "grpcio>=1.85.3,<1.86",
    "orjson>=3.10,<4",
    "prometheus-client>=0.20,<1",
    # Messages of TF Serving; its releases follow TensorFlow's.
    "tensorflow-serving-api>=2.17,<2.22",
]

ONNX = [
    # 1.17 lifted its bound on protobuf, which TensorFlow 2.17 pins to 4.
    "tf2onnx>=1.17,<2",
    "onnx>=1.17,<2",
    "onnxruntime>=1.20,<2",
]

# Both run on protobuf 4, which TensorFlow 2.17 needs, and on protobuf 6 and later.
TRACKERS = {
    # mlflow without its server; the other two are for a store in a SQLite file.
    "mlflow": ["mlflow-skinny>=3,<4", "sqlalchemy>=2,<3", "alembic>=1.13,<2"],
    "wandb": ["wandb>=0.19.10,<1"],
}


class ReproducibleSdist(sdist):
    """Writes fixed dates, owners and modes; setuptools does so for wheels only."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, **_):
        path = f"{base_name}.tar.gz"
        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=EPOCH) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=_plain)
        return path


def _plain(member):
    member.mtime, member.uid, member.gid = EPOCH, 0, 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() else 0o644
    return member


ARROW = ["pyarrow>=21"]
LMDB = ["lmdb>=1.4", "msgpack>=1,<2"]
ALIGN = ["mtcnn>=1,<2"]
CALIBRATION = ["scikit-learn>=1.4,<2"]
DEV = [
    *("jsonschema", "mypy", "nox[uv]", "pytest", "pytest-xdist", "ruff"),
    *("moto[server]", "scikit-image>=0.26", "webdataset>=1,<2"),
]

setup(
    name="plsc_tf",
    version=VERSION,
    description="Large-scale classification in TensorFlow with a class-sharded head",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords="tensorflow keras face-recognition arcface classification large-scale",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Image Recognition",
        "Typing :: Typed",
    ],
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["plsc_tf", "plsc_tf.*"]) + list(REMAPPED),
    package_dir=REMAPPED,
    entry_points={"console_scripts": SCRIPTS},
    cmdclass={"sdist": ReproducibleSdist},
    package_data={
        "plsc_tf.evaluation": ["pages/*"],
        "plsc_tf": ["py.typed", "*.pyi"],
        "plsc_tf.hparams": ["*.cfg"],
        "plsc_tf.options": ["*.toml"],
        "plsc_tf.serving": ["*.sql"],
    },
    install_requires=[
        "tensorflow>=2.17.1,<2.22",
        "keras>=3.12,<3.16",
        "numpy",
        # Earlier versions copy the same bytes for each entry of EXIF data.
        "pillow>=13",
        # The charts of reports.
        "matplotlib>=3.8,<4",
        # Writes the logs of --tensorboard; TensorFlow 2.21 no longer installs it.
        "tensorboard>=2.16",
        # The pages of reports.
        "jinja2>=3.1,<4",
        "absl-py",
        # Compares versions.
        "packaging",
        # Decodes the images of base64 files.
        "pybase64>=1.4,<2",
        # Checksums of TFRecords, in every reader and writer.
        "google-crc32c",
        # Checksums of checkpoints.
        "blake3>=1,<2",
    ],
    extras_require={
        "dev": [*DEV, *ONNX, *SERVING, *ARROW, *LMDB, *ALIGN, *CALIBRATION],
        # Ruff formats the signatures of functions.
        "docs": [
            "mkdocs>=1.6,<2",
            "mkdocs-material>=9.5,<10",
            "mkdocs-jupyter>=0.25,<1",
            "mkdocstrings[python]>=1,<2",
            "ruff",
        ],
        "gpu": ["tensorflow[and-cuda]>=2.17.1,<2.22"],
        "align": ALIGN,
        "calibration": CALIBRATION,
        "arrow": ARROW,
        "hdfs": ARROW,
        "s3": ARROW,
        "lmdb": LMDB,
        "onnx": ONNX,
        "serving": SERVING,
        # The last release of tensorflow-io does not load on TensorFlow 2.18 and later.
        "tfio": ["tensorflow>=2.17.1,<2.18", "tensorflow-io==0.37.1"],
        **TRACKERS,
    },
)
