"""The projection on disk: `pca_mat`, [k, n] float32 in a numpy file.

Next to it, `<name>.json` describes the weights of its columns, the snapshots that it
was made of, and the explained variances; `<name>.svg` draws them.
"""

import functools
import io
import json
import os
import shutil
import tempfile
import time

import numpy as np
from absl import logging

from plsc_tf.boost import pca
from plsc_tf.evaluation.charts import Axis, Chart, Curve, Mark
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

# Columns of a block when a projection is checked.
_CHECKED = 1 << 19
# Bytes in which the header of a numpy file ends.
_HEADER = 4096


class Projection:
    """A projection that is read by columns, from any store.

    Args:
        path: the numpy file.

    Raises:
        FileNotFoundError: there is none.
        IsADirectoryError: it is a folder.
        ValueError: it is not a matrix of float32 or float64.
    """

    def __init__(self, path):
        self.path = path
        if not files.exists(path):
            raise FileNotFoundError(f"pca_mat_path '{path}' does not exist.")
        self.shape, self._dtype, self._offset = _read_header(path)

    def columns(self, low, high):
        """The columns `[low, high)`: `[k, high − low]` float32."""
        if files.is_local(self.path):
            # Mapped for this while only: its pages would count as the process's.
            place = local_path(self.path)
            mapped = np.memmap(place, self._dtype, "r", self._offset, self.shape)
            return np.array(mapped[:, low:high], np.float32)
        size = self._dtype.itemsize
        columns = np.empty((self.shape[0], high - low), np.float32)
        for row in range(self.shape[0]):
            start = self._offset + size * (row * self.shape[1] + low)
            raw = files.read(self.path, start, start + size * (high - low))
            columns[row] = np.frombuffer(raw, self._dtype)
        return columns

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
                "without pca_mat_path, it is made again from weight_load_dir."
            )
        described = read_description(self.path)
        if described and described["weights"] != layout.describe():
            raise ValueError(
                f"pca_mat '{self.path}' is of a model with other weights, in another "
                "order. Use the model_name of stage 1."
            )
        product = np.zeros((components, components))
        for low in range(0, layout.size, _CHECKED):
            product += pca.square(self.columns(low, min(low + _CHECKED, layout.size)))
        deviation = pca.deviation(product)
        if not deviation <= pca.TOLERANCE:
            raise ValueError(
                f"pca_mat '{self.path}' must have orthonormal rows (P Pᵀ = I to "
                f"{pca.TOLERANCE:g}). Received: off by {deviation:.3g}."
            )


def _allocate(path, shape):
    """Makes a numpy file of its full size; returns the offset of its numbers.

    Raises:
        OSError: the disk has no room for it.
    """
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    whole = 4 * shape[0] * shape[1]
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        offset = file.tell()
        try:
            # All of it now: a disk that is full later would cost minutes.
            os.posix_fallocate(file.fileno(), offset, whole)
        except OSError as error:
            free = shutil.disk_usage(os.path.dirname(path)).free
            raise OSError(
                error.errno,
                f"The projection needs {whole:,} bytes at {path}, where {free:,} are "
                "free. Make room, name another model_save_dir, or lower n_component",
            ) from error
    return offset


def make(path, snapshots, layout, components, heartbeat=pca.nothing):
    """Computes a projection from snapshots and keeps it at `path`.

    Args:
        path: the numpy file to be, on any store.
        snapshots: list of `Snapshot`.
        layout: the `Layout`.
        components: k.
        heartbeat: function that is called after each block.

    Raises:
        OSError: no room for it.
        ValueError: the snapshots do not span k dimensions, or are not finite.
    """
    begun = time.perf_counter()
    files.make_dirs(files.parent(path))
    local = files.is_local(path)
    if local:
        # The remains of a killed run are overwritten.
        scratch = f"{os.path.abspath(local_path(path))}.writing"
    else:
        handle, scratch = tempfile.mkstemp(".writing", "pca_mat-")
        os.close(handle)
    shape = (components, layout.size)
    try:
        offset = _allocate(scratch, shape)

        def write(low, part):
            # Mapped for this call only: its pages would count as the process's.
            mapped = np.memmap(scratch, "<f4", "r+", offset, shape)
            mapped[:, low : low + part.shape[1]] = part

        variances, off = _compute(write, snapshots, layout, components, heartbeat)
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
    shares = 100 * np.cumsum(variances)
    marks = sorted(k for k in {1, 2, 4, 8, 16, components} if k <= components)
    logging.info(
        "Explained variance by components: %s. %s was made in %.1f s.",
        ", ".join(f"{k}: {shares[k - 1]:.2f} %" for k in marks),
        path,
        time.perf_counter() - begun,
    )


def _compute(write, snapshots, layout, components, heartbeat):
    """Both passes, and a third where rounding has cost orthonormality.

    Returns:
        (the explained variances, the deviation of P Pᵀ from the identity).
    """

    def name(place):
        return next(p.name for p in layout.pieces if p.start <= place < p.stop)

    size = layout.size
    mixing, variances = pca.decompose(snapshots, size, components, name, heartbeat)
    product = pca.project(snapshots, size, mixing, write, heartbeat)
    if pca.deviation(product) > pca.TOLERANCE / 10:
        mixing = pca.orthonormal(mixing, product)
        product = pca.project(snapshots, size, mixing, write, heartbeat)
    off = pca.deviation(product)
    if not off <= pca.TOLERANCE:
        raise ValueError(
            f"The snapshots' principal components are orthonormal to {off:.3g} only: "
            f"they differ too little. Received: n_component={components}. Lower it."
        )
    return variances, off


def plot(variances, components):
    """The share of the variance by the number of components, as SVG."""
    shares = np.cumsum(variances)
    points = [(i + 1, float(share)) for i, share in enumerate(shares)]
    low = min(0.9, float(shares[0]))
    return Chart(
        "Explained variance of the snapshots",
        "The share of the snapshots' variance by the number of components.",
        Axis("components", 1, max(2, len(points))),
        Axis("share of the variance", low, 1.0),
        [Curve("explained", points)],
        [Mark(f"n_component {components}", components)],
    ).svg()


def read_description(path: str) -> dict | None:
    """The description of a projection; None if it has none."""
    place = f"{path}.json"
    return json.loads(files.read(place)) if files.exists(place) else None


def _read_header(path):
    """(shape, type, offset of the first number) of a numpy file."""
    try:
        file = io.BytesIO(files.read(path, 0, min(files.size(path), _HEADER)))
        major, minor = np.lib.format.read_magic(file)
        read = getattr(np.lib.format, f"read_array_header_{major}_{minor}")
        shape, fortran, dtype = read(file)
        offset = file.tell()
    except (AttributeError, ValueError) as error:
        raise ValueError(
            f"pca_mat '{path}' must be a numpy file (.npy). Received: {error}."
        ) from error
    if fortran or len(shape) != 2 or dtype.kind != "f":
        order = "column by column" if fortran else "row by row"
        raise ValueError(
            f"pca_mat '{path}' must be a matrix of floats [n_component, weights], row "
            f"by row. Received: {dtype} {list(shape)}, {order}."
        )
    size = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if files.size(path) != size:
        raise ValueError(
            f"pca_mat '{path}' is cut off: expected {size} bytes. Received: "
            f"{files.size(path)}."
        )
    return tuple(shape), dtype, offset
