"""print_model_statistics, log_device_placement: what a model is made of, and where."""

import collections

import numpy as np
import tensorflow as tf

from plsc_tf.evaluation import report

# Rows of the head that are read at a time.
BLOCK_ROWS = 16384


def statistics(model):
    """The text that `print_model_statistics` prints.

    A table of the network's layers, then every trainable variable with its shape and
    the sum of its numbers, then the totals. In a cluster all workers must call it.

    Args:
        model: the `Classifier`.
    """
    parts = ["Layers:", report.format_table(_layers(model.backbone))]
    rows, count, size = [], 0, 0
    for variable in model.backbone.trainable_variables:
        values = variable.numpy()
        rows.append((variable.path, _tell(variable.shape, float(_sum(values)))))
        count += values.size
        size += values.nbytes
    head_count = head_size = 0
    for name, array in model.head.arrays().items():
        total, items = 0.0, 0
        for low in range(0, array.shape[0], BLOCK_ROWS):
            block = array.read(low, min(low + BLOCK_ROWS, array.shape[0]))
            total += float(_sum(block))
            items += block.size
        rows.append((f"head/{name}", _tell(array.shape, total)))
        head_count += items
        head_size += items * np.dtype(array.dtype).itemsize
    fixed = model.backbone.non_trainable_variables
    totals = [
        ("network, trainable", f"{count:,} numbers, {size:,} bytes"),
        (
            "network, not trainable",
            f"{sum(int(np.prod(v.shape)) for v in fixed):,} numbers",
        ),
        ("head", f"{head_count:,} numbers, {head_size:,} bytes"),
        ("trainable in all", f"{count + head_count:,} numbers"),
    ]
    parts += ["Trainable variables:", report.format_table(rows)]
    parts += ["Totals:", report.format_table(totals)]
    return "\n".join(parts)


def placement(model):
    """The text that `log_device_placement` prints: devices, and what they hold."""
    held = collections.defaultdict(lambda: [0, 0, 0])
    for variable in model.backbone.variables:
        for copy in model.strategy.experimental_local_results(variable.value):
            _add(held[copy.device], 0, copy)
    for array in model.head.arrays().values():
        for tile in _tiles(array, model.strategy):
            _add(held[tile.device], 1, tile)
    rows = [
        (
            device or "unplaced",
            f"{network:,} numbers of the network, {head:,} of the head; {size:,} bytes",
        )
        for device, (network, head, size) in sorted(held.items())
    ]
    return report.format_table(rows)


def _tiles(array, strategy):
    """The variables of rows that are here."""
    if hasattr(array, "tiles"):
        return [tile for tiles in array.tiles.values() for tile in tiles]
    return strategy.experimental_local_results(array.variable.value)


def _add(entry, kind, tensor):
    count = int(np.prod(tensor.shape))
    entry[kind] += count
    entry[2] += count * tf.as_dtype(tensor.dtype).size


def _layers(network):
    for layer in network._flatten_layers(include_self=False):
        if list(layer._flatten_layers(include_self=False)):
            continue
        count = sum(int(np.prod(w.shape)) for w in layer.weights)
        size = sum(
            int(np.prod(w.shape)) * tf.as_dtype(w.dtype).size for w in layer.weights
        )
        called = getattr(layer, "_inbound_nodes", None)
        outputs = tf.nest.flatten(layer.output) if called else []
        shape = ", ".join(_sides(output.shape) for output in outputs)
        yield (
            f"{type(layer).__name__} {layer.path}",
            f"{shape:<16} {count:>12,} numbers {size:>14,} bytes",
        )


def _sides(shape):
    return "×".join("N" if n is None else str(n) for n in shape)


def _sum(values):
    return np.asarray(values, np.float32).sum(dtype=np.float64)


def _tell(shape, total):
    text = "×".join(map(str, shape)) or "scalar"
    return f"{text:<20} sum {total:.6g}"
