"""Creates, reads and checks the projection file `pca_mat`, `[k, n]` float32 in NumPy.

The adjacent file `<name>.json` describes the weights of its columns, its snapshots and
the explained variances; `<name>.svg` plots the variances.
"""

import functools
import io
import json
import math
import os
import shutil
import tempfile
import time

import numpy as np
from absl import logging

from plsc_tf.boost import pca
from plsc_tf.evaluation.charts import Chart
from plsc_tf.requirements import require
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

# Number of columns to read at a time when checking a projection.
_CHECKED = 1 << 19
# The header of a NumPy file ends within this many bytes.
_HEADER = 4096
_ADVICE = "To create one, leave out pca_mat_path and set another model_save_dir"


class Projection:
    """A projection file that is read by columns, from any store.

    Args:
        path: path of the NumPy file.

    Raises:
        FileNotFoundError: the file does not exist.
        IsADirectoryError: the path is a folder.
        ValueError: the file is not a matrix of floats.
    """

    def __init__(self, path):
        self.path = path
        if not files.exists(path):
            raise FileNotFoundError(f"pca_mat_path '{path}' does not exist.")
        self.shape, self._dtype, self._offset = _read_header(path)

    def columns(self, low, high):
        """Reads the columns `[low, high)` as `[k, high − low]` float32."""
        size = self._dtype.itemsize
        columns = np.empty((self.shape[0], high - low), np.float32)
        for row in range(self.shape[0]):
            start = self._offset + size * (row * self.shape[1] + low)
            raw = files.read(self.path, start, start + size * (high - low))
            columns[row] = np.frombuffer(raw, self._dtype)
        return columns

    def check(self, layout, components):
        """Checks that the projection fits the model and has orthonormal rows.

        Args:
            layout: the `Layout` of the model.
            components: k, the number of components.

        Raises:
            ValueError: the projection does not fit the model, or its rows are not
                orthonormal.
        """
        wanted = (components, layout.size)
        rule = f"pca_mat '{self.path}' must be [n_component, weights] = {list(wanted)}"
        advice = f"It is of another model, n_component or dim_reduce_scope. {_ADVICE}"
        require(self.shape == wanted, rule, advice, shape=list(self.shape))
        described = read_description(self.path)
        fits = not described or described["weights"] == layout.describe()
        rule = f"pca_mat '{self.path}' is of other weights, or of another order of them"
        require(fits, rule, "Use the model_name of stage 1")
        product = np.zeros((components, components))
        for low in range(0, layout.size, _CHECKED):
            product += pca.square(self.columns(low, min(low + _CHECKED, layout.size)))
        off = pca.deviation(product)
        rule = f"pca_mat '{self.path}' must have orthonormal rows, to {pca.TOLERANCE:g}"
        require(off <= pca.TOLERANCE, rule, _ADVICE, deviation=f"{off:.3g}")


def _allocate(path, shape):
    """Creates a NumPy file of its full size.

    Raises:
        OSError: the disk has too little free space.
    """
    try:
        mapped = np.lib.format.open_memmap(path, "w+", "<f4", shape)
        # Reserving all space now avoids minutes of wasted work on a full disk.
        with open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), mapped.offset, mapped.nbytes)
    except OSError as error:
        free = shutil.disk_usage(os.path.dirname(path)).free
        raise OSError(
            error.errno,
            f"The projection needs {4 * math.prod(shape):,} bytes at {path}, and "
            f"{free:,} are free. Set another model_save_dir, or lower n_component",
        ) from error


def make(path, snapshots, layout, components):
    """Computes a projection from snapshots and stores it at `path`.

    Args:
        path: path of the NumPy file to write, on any store.
        snapshots: list of `Snapshot`.
        layout: the `Layout` of the model.
        components: k, the number of components.

    Raises:
        OSError: the disk has too little free space.
        ValueError: the snapshots span fewer than k dimensions, or contain NaN or
            infinity.
    """
    begun = time.perf_counter()
    files.make_dirs(files.parent(path))
    local = files.is_local(path)
    if local:
        # The fixed name lets this run overwrite a killed run's scratch file.
        scratch = f"{os.path.abspath(local_path(path))}.writing"
    else:
        handle, scratch = tempfile.mkstemp(".writing", "pca_mat-")
        os.close(handle)
    shape = (components, layout.size)
    try:
        _allocate(scratch, shape)

        def write(low, part):
            # Mapped only for this call: mapped pages count as the process's memory.
            mapped = np.load(scratch, "r+")
            mapped[:, low : low + part.shape[1]] = part

        variances, off = _compute(write, snapshots, layout, components)
        if local:
            with open(scratch, "rb") as file:
                os.fsync(file.fileno())
            os.replace(scratch, local_path(path))
        else:
            files.write(path, functools.partial(files.open_read, scratch))
    finally:
        if os.path.exists(scratch):
            os.remove(scratch)
    described = {
        "shape": list(shape),
        "weights": layout.describe(),
        "snapshots": [one.path for one in snapshots],
        "explained_variance": variances.tolist(),
        "off_orthonormal": off,
    }
    files.write(f"{path}.json", json.dumps(described, indent=1).encode())
    drawing = plot(variances, components).encode()
    files.write(f"{path.removesuffix('.npy')}.svg", drawing)
    share, seconds = sum(variances[:components]), time.perf_counter() - begun
    logging.info(f"{path}: {share:.2%} of the variance, made in {seconds:.1f} s.")


def _compute(write, snapshots, layout, components):
    """Runs both passes, and a third if rounding errors make the rows non-orthonormal.

    Returns:
        (explained variances, deviation of P Pᵀ from the identity).
    """

    def name(place):
        return next(p.name for p in layout.pieces if p.start <= place < p.stop)

    size = layout.size
    mixing, variances = pca.decompose(snapshots, size, components, name)
    product = pca.project(snapshots, size, mixing, write)
    if pca.deviation(product) > pca.TOLERANCE / 10:
        mixing = pca.orthonormal(mixing, product)
        product = pca.project(snapshots, size, mixing, write)
    off = pca.deviation(product)
    fits = off <= pca.TOLERANCE
    rule = f"The snapshots differ too little: {off:.3g} from orthonormal components"
    require(fits, rule, "Lower it", n_component=components)
    return variances, off


def plot(variances, components):
    """Plots the share of the variance by the number of components, as SVG."""
    shares = np.cumsum(variances)
    points = [(i + 1, float(share)) for i, share in enumerate(shares)]
    return Chart(
        "Explained variance of the snapshots",
        "The share of the snapshots' variance by the number of components.",
        ("components", "share of the variance"),
        ((1, max(2, len(points))), (min(0.9, points[0][1]), 1.0)),
        {"explained": points},
        [(f"n_component {components}", components, "--")],
    ).svg()


def read_description(path: str) -> dict | None:
    """Returns the description of a projection, or None if it has none."""
    place = f"{path}.json"
    return files.read_json(place) if files.exists(place) else None


def _read_header(path):
    """Returns (shape, dtype, offset of the data) of a NumPy file."""
    try:
        file = io.BytesIO(files.read(path, 0, min(files.size(path), _HEADER)))
        major, minor = np.lib.format.read_magic(file)
        read = getattr(np.lib.format, f"read_array_header_{major}_{minor}")
        shape, fortran, dtype = read(file)
        offset = file.tell()
    except OSError:
        raise
    except Exception as error:  # numpy raises errors of many types
        raise ValueError(
            f"pca_mat '{path}' must be a numpy file (.npy). Received: {error}."
        ) from error
    if fortran or len(shape) != 2 or dtype.kind != "f":
        order = "column by column" if fortran else "row by row"
        raise ValueError(
            f"pca_mat '{path}' must be a matrix of floats [n_component, weights], row "
            f"by row. Received: {dtype} {list(shape)}, {order}."
        )
    size = offset + math.prod(shape) * dtype.itemsize
    rule = f"pca_mat '{path}' must have {size:,} bytes; copy it again"
    require(files.size(path) == size, rule, bytes=files.size(path))
    return tuple(shape), dtype, offset
