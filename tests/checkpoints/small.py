"""Content of a small checkpoint, and something to load it into."""

import keras
import numpy as np
import tensorflow as tf

import plsc_tf
from plsc_tf.checkpoints import manifest, reader, writer
from plsc_tf.parallel.rows import ShardedRows
from plsc_tf.storage import files

WHOLE = np.arange(14, dtype=np.float32).reshape(7, 2)
FILES = [
    "backbone.weights.h5",
    "manifest.json",
    "rows/weight-0000000000-0000000007.npy",
    "training.npz",
]


def make_rows(replicas, rows=WHOLE, **layout):
    """`ShardedRows` of a value."""
    strategy = plsc_tf.strategy(replicas)
    return ShardedRows(strategy, lambda a, b: rows[a:b], len(rows), "weight", **layout)


def make_network(value=0.0):
    """A layer whose kernel `[2, 3]` holds one number, and whose bias holds 0."""
    network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    network.layers[0].kernel.assign(np.full((2, 3), value))
    return network


def make_content(
    step, *, replicas=3, array=None, network=None, kind="training", **state
):
    """All kinds of things, whose values depend on the step."""
    network = network or make_network(float(step))
    variables = {"optimizer/0000": tf.fill([2], float(step))}
    if array is None:
        array = make_rows(replicas, WHOLE + step)
    state = {"num_classes": array.shape[0], "embedding_size": array.shape[1], **state}
    values = [(v, tf.convert_to_tensor(v.value)) for v in network.variables]
    return writer.Content(
        state={"global_step": step, "flags": {"learning_rate": 0.1}, **state},
        backbone=writer.backbone_file(network, values),
        arrays={"weight": array},
        training=writer.variables_file(variables) if kind == "training" else None,
    )


def save(path, step=5, **options):
    """Writes such a checkpoint; returns its path."""
    writer.save(str(path), make_content(step, **options))
    return str(path)


def save_run(directory, steps=(10, 20, 30)):
    """Checkpoints of these steps, under such names as a run gives."""
    return [save(directory / f"step_{step:08d}", step) for step in steps]


def seal(path, content, algorithm="blake3"):
    """Writes the manifest that belongs to the files as they are."""
    for name in content["files"]:
        content["files"][name] = files.checksum(str(path / name), algorithm)
    (path / manifest.NAME).write_bytes(manifest.encode(content))


class Target:
    """Something of the same shapes that holds nothing yet."""

    def __init__(self, replicas=2):
        self.network = make_network()
        self.variable = keras.Variable(np.zeros(2, np.float32))
        self.rows = make_rows(replicas, np.zeros((7, 2), np.float32))

    def restore(self, path, **options):
        """Loads a checkpoint; returns its state."""
        return reader.restore(
            str(path),
            network=self.network,
            variables={"optimizer/0000": self.variable},
            arrays={"weight": self.rows},
            **options,
        )

    def holds(self, step):
        """Whether all of it is what `make_content` has for the step."""
        return (
            np.all(self.network.layers[0].kernel.numpy() == step)
            and np.all(self.variable.numpy() == step)
            and np.all(self.rows.read(0, 7) == WHOLE + step)
        )

    def is_untouched(self):
        """Whether nothing was loaded at all."""
        arrays = [self.variable, *self.network.weights]
        return not any(np.any(v.numpy()) for v in arrays) and not np.any(
            self.rows.read(0, self.rows.shape[0])
        )
