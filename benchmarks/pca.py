"""Principal components of many snapshots of a large model: time and memory.

Snapshots are written first, in a process of its own, as a random walk with a drift;
then the projection is made of them and its memory is measured. The last line printed is
one JSON object.

    python -m benchmarks.pca
    python -m benchmarks.pca --snapshots=20 --weights=2000000 --folder=/mnt/disk
"""

import concurrent.futures
import multiprocessing
import time

from benchmarks import machine, options
from plsc_tf.flags.option import OptionGroup, option


class PcaCase(OptionGroup):
    """How much is decomposed, and where it lies."""

    snapshots: int = option(60, "rows of the matrix, T", lower=2)
    weights: int = option(25_000_000, "columns of the matrix, n", lower=1000)
    n_component: int = option(32, "components, k", lower=1)
    folder: str = option("", "folder for the snapshots; empty: a temporary one")
    seed: int = option(0, "random seed of the snapshots")


def main(case):
    """Measures one case and prints it."""
    need = 4 * case.weights * (case.snapshots + case.n_component)
    asked = f"weights={case.weights} and snapshots={case.snapshots}"
    with (
        machine.scratch("pca", case.folder, need, asked) as folder,
        machine.report(case) as figures,
    ):
        for work in (write, measure):
            # In a process of its own, whose peak of memory is measured.
            spawn = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
                figures |= pool.submit(work, case, folder).result()


def network(case):
    """A model with so many weights, in four layers of different size, and a head."""
    import keras

    import plsc_tf

    width = 256
    rest = case.weights - 2 * width * width - 12 * width
    inputs = keras.Input((2, 2, 3))
    x = keras.layers.Flatten()(inputs)
    for units in (width, rest // (2 * width), width, width, width):
        x = keras.layers.Dense(units, use_bias=False)(x)
    return plsc_tf.Classifier(keras.Model(inputs, x), plsc_tf.ShardedHead(4))


def write(case, folder):
    """Writes the snapshots: a drift, and noise that is theirs."""
    import numpy as np

    from plsc_tf.training import state

    model = network(case)
    rng = np.random.default_rng(case.seed)
    variables = model.backbone.trainable_variables
    drift = [rng.standard_normal(v.shape, np.float32) for v in variables]
    for number in range(case.snapshots):
        for variable, way in zip(variables, drift, strict=True):
            noise = rng.standard_normal(variable.shape, np.float32)
            variable.assign_add(0.001 * way + 0.001 * noise)
        model.trainer.position.global_step = number + 1
        path = f"{folder}/step_{number + 1:08d}"
        state.save(path, model, {}, weights_only=True)
    return {"weights": model.backbone.count_params()}


def measure(case, folder):
    """Makes the projection; returns the figures."""
    from plsc_tf.boost import projection, trajectory

    whole = trajectory.layout_of(network(case), "backbone")
    before = machine.peak_rss()
    begun, cpu = time.perf_counter(), time.process_time()
    rows = trajectory.open_folder(folder, whole, case.n_component)
    opened = time.perf_counter()
    path = f"{folder}/pca_mat.npy"
    projection.make(path, rows, whole, case.n_component)
    return {
        "seconds": time.perf_counter() - begun,
        "checking_seconds": opened - begun,
        "processor_seconds": time.process_time() - cpu,
        "peak_memory_gb": machine.peak_rss() / machine.GB,
        "memory_before_gb": before / machine.GB,
        "off_orthonormal": projection.read_description(path)["off_orthonormal"],
    }


if __name__ == "__main__":
    options.run(main, PcaCase, __doc__)
