"""Creates, reads and checks the projection file `pca_mat`, `[k, n]` float32 in NumPy.

The adjacent file `<name>.json` describes the weights of its columns, its snapshots and
the explained variances; `<name>.svg` plots the variances.
"""

import json
import math
import time

import numpy as np
from absl import logging

from plsc_tf.boost import pca
from plsc_tf.evaluation.charts import Chart
from plsc_tf.requirements import require
from plsc_tf.storage import arrays, files

# Number of columns to read at a time when checking a projection.
_CHECKED = 1 << 19
_ADVICE = "To create one, leave out pca_mat_path and set another model_save_dir"


def read(path: str) -> np.ndarray:
    """Returns a projection; a local file is mapped into memory.

    Args:
        path: path of the NumPy file, on any store.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError: the path is a folder, or the store did not answer.
        ValueError: the file is not a matrix of floats.
    """
    if not files.exists(path):
        raise FileNotFoundError(f"pca_mat_path '{path}' does not exist.")
    matrix = arrays.read(path)
    rule = f"pca_mat '{path}' must be a matrix of floats [n_component, weights]"
    fits = matrix.ndim == 2 and matrix.dtype.kind == "f"
    require(fits, rule, dtype=matrix.dtype, shape=list(matrix.shape))
    return matrix


def check(path, layout, components):
    """Checks that a projection fits the model and has orthonormal rows.

    Args:
        path: see `read`.
        layout: the `Layout` of the model.
        components: k, the number of components.

    Raises:
        OSError, ValueError: as `read`; or the projection does not fit the model, or its
            rows are not orthonormal.
    """
    matrix, wanted = read(path), (components, layout.size)
    rule = f"pca_mat '{path}' must be [n_component, weights] = {list(wanted)}"
    advice = f"It is of another model, n_component or dim_reduce_scope. {_ADVICE}"
    require(matrix.shape == wanted, rule, advice, shape=list(matrix.shape))
    place = f"{path}.json"
    described = files.read_json(place) if files.exists(place) else None
    fits = not described or described["weights"] == layout.describe()
    rule = f"pca_mat '{path}' is of other weights, or of another order of them"
    require(fits, rule, "Use the model_name of stage 1")
    product = np.zeros((components, components))
    for low in range(0, layout.size, _CHECKED):
        product += pca.square(matrix[:, low : low + _CHECKED])
    off = pca.deviation(product)
    rule = f"pca_mat '{path}' must have orthonormal rows, to {pca.TOLERANCE:g}"
    require(off <= pca.TOLERANCE, rule, _ADVICE, deviation=f"{off:.3g}")


def make(path, snapshots, layout, components):
    """Computes a projection from snapshots and stores it at `path`.

    Rounding errors may make the rows of P non-orthonormal; P is then computed again.

    Args:
        path: path of the NumPy file to write, on any store.
        snapshots: list of `Snapshot`.
        layout: the `Layout` of the model.
        components: k, the number of components.

    Raises:
        OSError: the store has too little free space.
        ValueError: the snapshots span fewer than k dimensions, or contain NaN or
            infinity.
    """

    def name(place):
        return next(p.name for p in layout.pieces if p.start <= place < p.stop)

    begun, size = time.perf_counter(), layout.size
    files.make_dirs(files.parent(path))
    mixing, variances = pca.decompose(snapshots, size, components, name)
    product = _write(path, snapshots, size, mixing)
    if pca.deviation(product) > pca.TOLERANCE / 10:
        product = _write(path, snapshots, size, pca.orthonormal(mixing, product))
    off = pca.deviation(product)
    rule = f"The snapshots differ too little: {off:.3g} from orthonormal components"
    require(off <= pca.TOLERANCE, rule, "Lower it", n_component=components)
    described = {"shape": [components, size], "weights": layout.describe()}
    described["snapshots"] = [one.path for one in snapshots]
    described |= {"explained_variance": variances.tolist(), "off_orthonormal": off}
    files.write(f"{path}.json", json.dumps(described, indent=1).encode())
    drawing = plot(variances, components).encode()
    files.write(f"{path.removesuffix('.npy')}.svg", drawing)
    share, seconds = sum(variances[:components]), time.perf_counter() - begun
    logging.info(f"{path}: {share:.2%} of the variance, made in {seconds:.1f} s.")


def _write(path, snapshots, size, mixing):
    """Writes P = M X̄ column by column, as it is computed; returns P Pᵀ."""
    shape, product = (len(mixing), size), np.zeros((len(mixing), len(mixing)))

    def chunks():
        product[...] = 0.0
        yield arrays.npy_header(shape, "<f4", by_columns=True)
        for part in pca.project(snapshots, size, mixing):
            product[...] += pca.square(part)
            yield np.ascontiguousarray(part.T)

    try:
        files.replace(path, chunks)
    except OSError as error:
        raise OSError(
            error.errno,
            f"The projection needs {4 * math.prod(shape):,} bytes at {path}: {error}. "
            "Set another model_save_dir, or lower n_component",
        ) from error
    return product


def plot(variances, components):
    """Plots the share of the variance by the number of components, as SVG."""
    points = [(i + 1, float(share)) for i, share in enumerate(np.cumsum(variances))]
    return Chart(
        "Explained variance of the snapshots",
        "The share of the snapshots' variance by the number of components.",
        ("components", "share of the variance"),
        ((1, max(2, len(points))), (min(0.9, points[0][1]), 1.0)),
        {"explained": points},
        [(f"n_component {components}", components, "--")],
    ).svg()
