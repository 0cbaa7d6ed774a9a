"""The projection on disk: `pca_mat`, [k, n] float32 in a numpy file.

Beside it stands `<name>.json`: which weights its columns are, the snapshots that it was
made of, and the explained variances; `<name>.svg` draws them.
"""

import functools
import json
import os
import shutil
import tempfile
import time

import numpy as np
from absl import logging

from plsc_tf.boost import pca
from plsc_tf.boost.ranged_file import RangedFile
from plsc_tf.evaluation.charts import Axis, Chart, Curve, Mark
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

SUFFIX = ".npy"
# Numbers that are looked at together when a projection is checked.
_CHECKED = 1 << 19


class Projection:
    """A projection that is read by columns, from any store.

    Args:
        path: the numpy file.

    Raises:
        FileNotFoundError: there is none.
        IsADirectoryError: it is a folder.
        ValueError: it is no matrix of float32 or float64.
    """

    def __init__(self, path):
        self.path = path
        if not files.exists(path):
            raise FileNotFoundError(f"pca_mat_path '{path}' is not there.")
        if files.is_dir(path):
            raise IsADirectoryError(
                f"pca_mat_path '{path}' is a folder: expected the numpy file, which a "
                "stage 2 without this option keeps as model_save_dir/pca_mat.npy."
            )
        self.shape, self._dtype, self._offset = _read_header(path)

    def columns(self, low, high):
        """The columns `[low, high)`: `[k, high − low]` float32."""
        if files.is_local(self.path):
            # Mapped for this while only: its pages would count as the process's.
            place = local_path(self.path)
            mapped = np.memmap(place, self._dtype, "r", self._offset, self.shape)
            return np.array(mapped[:, low:high], np.float32)
        size, found = self._dtype.itemsize, []
        for row in range(self.shape[0]):
            start = self._offset + (row * self.shape[1] + low) * size
            raw = files.read(self.path, start, start + (high - low) * size)
            found.append(np.frombuffer(raw, self._dtype))
        return np.array(found, np.float32)

    def check(self, layout, components):
        """Compares shape, weights and orthonormality with what is needed.

        Args:
            layout: the `Layout` of the model.
            components: k.

        Raises:
            ValueError: it does not fit, or its rows are not orthonormal.
        """
        wanted = (components, layout.size)
        if self.shape != wanted:
            raise ValueError(
                f"pca_mat '{self.path}' must have the shape [n_component, weights] = "
                f"{list(wanted)}. Received: {list(self.shape)}. It is of another "
                "model, n_component or dim_reduce_scope. In another model_save_dir and "
                "without pca_mat_path, it is made anew from weight_load_dir."
            )
        described = read_description(self.path)
        if described and described["weights"] != layout.describe():
            raise ValueError(
                f"pca_mat '{self.path}' is of a model with other weights, in another "
                "order. Use the model_name of stage 1."
            )
        product = np.zeros((components, components))
        for low in range(0, layout.size, _CHECKED):
            part = self.columns(low, min(low + _CHECKED, layout.size))
            wide = part.astype(np.float64)
            product += wide @ wide.T
        found = pca.deviation(product)
        if not found <= pca.TOLERANCE:
            raise ValueError(
                f"pca_mat '{self.path}' must have orthonormal rows (P Pᵀ = I to "
                f"{pca.TOLERANCE:g}). Received: off by {found:.3g}."
            )


class Writer:
    """Writes a projection block by block into a local file of its full size.

    Args:
        path: the local file.
        shape: `(k, n)`.

    Raises:
        OSError: the disk has no room for it.
    """

    def __init__(self, path, shape):
        self.shape = shape
        self._file = open(path, "wb")
        np.lib.format.write_array_header_1_0(
            self._file,
            {"descr": "<f4", "fortran_order": False, "shape": tuple(shape)},
        )
        self._file.flush()
        self._offset = self._file.tell()
        whole = 4 * shape[0] * shape[1]
        try:
            # All of it now: a disk that is full later would cost minutes.
            os.posix_fallocate(self._file.fileno(), self._offset, whole)
        except OSError as error:
            self.close()
            free = shutil.disk_usage(os.path.dirname(path)).free
            raise OSError(
                error.errno,
                f"The projection needs {whole:,} bytes at {path}, where {free:,} are "
                "free. Make room, name another model_save_dir, or lower n_component",
            ) from error

    def write(self, low, part):
        """Writes the columns from `low` on: `[k, m]`."""
        for row, values in enumerate(part):
            place = self._offset + 4 * (row * self.shape[1] + low)
            data = memoryview(np.ascontiguousarray(values, "<f4")).cast("B")
            while data:
                done = os.pwrite(self._file.fileno(), data, place)
                data, place = data[done:], place + done

    def close(self):
        """Closes the file, which is on the disk then."""
        os.fsync(self._file.fileno())
        self._file.close()


def make(path, snapshots, layout, components, alive=None):
    """Computes a projection from snapshots and keeps it at `path`.

    Args:
        path: the numpy file to be, on any store.
        snapshots: list of `Snapshot`.
        layout: the `Layout`.
        components: k.
        alive: function that is called now and then.

    Returns:
        the explained variances `[T]`, as shares of their sum.

    Raises:
        OSError: no room for it.
        ValueError: the snapshots do not span k dimensions, or are not finite.
    """
    begun = time.perf_counter()
    files.make_dirs(files.parent(path))
    local = files.is_local(path)
    if local:
        # What a run that was killed has left of it is written over.
        scratch = f"{os.path.abspath(local_path(path))}.writing"
    else:
        handle, scratch = tempfile.mkstemp(".writing", "pca_mat-")
        os.close(handle)
    shape = (components, layout.size)
    try:
        writer = Writer(scratch, shape)
        try:
            found, off = _compute(writer, snapshots, layout, components, alive)
        finally:
            writer.close()
        if local:
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
        "explained_variance": [float(value) for value in found.variances],
        "off_orthonormal": off,
    }
    files.write(f"{path}.json", json.dumps(described, indent=1).encode())
    files.write(f"{_stem(path)}.svg", plot(found.variances, components).encode())
    _tell(path, found.variances, components, time.perf_counter() - begun)
    return found.variances


def _compute(writer, snapshots, layout, components, alive):
    """Both passes, and a third where rounding has cost orthonormality."""

    def name(place):
        return next(p.name for p in layout.pieces if p.start <= place < p.stop)

    found = pca.decompose(snapshots, layout.size, components, name, alive)
    product = pca.project(snapshots, layout.size, found, writer.write, alive)
    if pca.deviation(product) > pca.TOLERANCE / 10:
        exact = pca.orthonormal(found, product)
        product = pca.project(snapshots, layout.size, exact, writer.write, alive)
    off = pca.deviation(product)
    if not off <= pca.TOLERANCE:
        raise ValueError(
            f"The snapshots' principal components are orthonormal to {off:.3g} only: "
            f"they differ too little. Received: n_component={components}. Lower it."
        )
    return found, off


def plot(variances, components):
    """The share of the variance that so many components explain, as SVG."""
    shares = np.cumsum(variances)
    points = [(i + 1, float(share)) for i, share in enumerate(shares)]
    low = min(0.9, float(shares[0]))
    return Chart(
        "Explained variance of the snapshots",
        "The share of the snapshots' variance that so many components explain.",
        Axis("components", 1, max(2, len(points))),
        Axis("share of the variance", low, 1.0),
        [Curve("explained", points)],
        [Mark(f"n_component {components}", components)],
    ).svg()


def read_description(path):
    """What stands beside a projection; None where it came from elsewhere."""
    place = f"{path}.json"
    return json.loads(files.read(place)) if files.exists(place) else None


def _tell(path, variances, components, seconds):
    shares = np.cumsum(variances)
    marks = sorted({1, 2, 4, 8, 16, components} & set(range(1, components + 1)))
    told = ", ".join(f"{k}: {100 * shares[k - 1]:.2f} %" for k in marks)
    logging.info(
        "Explained variance by components: %s. %s was made in %.1f s.",
        told,
        path,
        seconds,
    )


def _stem(path):
    return path.removesuffix(SUFFIX)


def _read_header(path):
    """(shape, type, offset of the first number) of a numpy file."""
    try:
        with RangedFile(path) as file:
            version = np.lib.format.read_magic(file)
            read = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, fortran, dtype = read(file)
            offset = file.tell()
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"pca_mat '{path}' must be a numpy file (.npy). Received: {error}."
        ) from error
    if fortran or len(shape) != 2 or dtype.kind != "f":
        raise ValueError(
            f"pca_mat '{path}' must be a matrix of floats [n_component, weights], row "
            f"by row. Received: {dtype} {list(shape)}"
            + (", column by column." if fortran else ".")
        )
    size = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if files.size(path) != size:
        raise ValueError(
            f"pca_mat '{path}' is cut off: expected {size} bytes. Received: "
            f"{files.size(path)}."
        )
    return tuple(shape), dtype, offset
