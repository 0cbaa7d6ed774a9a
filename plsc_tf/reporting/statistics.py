"""print_model_statistics and log_device_placement: layers, variables, devices."""

import collections
import math

import numpy as np
import tensorflow as tf

from plsc_tf.evaluation import report

# Rows of the head that are read at a time.
BLOCK_ROWS = 16384


def statistics(model) -> str:
    """The text that `print_model_statistics` prints.

    Keras's table of the network's layers, then every trainable variable with its shape
    and the sum of its numbers, then the totals. In a cluster all workers must call it.

    Args:
        model: the `Classifier`.
    """
    network, head = model.backbone.trainable_variables, model.head.arrays()
    rows = [(v.path, _described(v.shape, _sum(v.numpy()))) for v in network]
    for name, array in head.items():
        bounds = [*range(0, array.shape[0], BLOCK_ROWS), array.shape[0]]
        blocks = zip(bounds, bounds[1:], strict=False)
        total = sum(_sum(array.read(low, high)) for low, high in blocks)
        rows.append((f"head/{name}", _described(array.shape, total)))
    fixed, _ = _size(model.backbone.non_trainable_variables)
    count, size = _size(network)
    head_count, head_size = _size(head.values())
    totals = [
        ("network, trainable", f"{count:,} numbers, {size:,} bytes"),
        ("network, not trainable", f"{fixed:,} numbers"),
        ("head", f"{head_count:,} numbers, {head_size:,} bytes"),
        ("trainable in all", f"{count + head_count:,} numbers"),
    ]
    parts = []
    model.backbone.summary(
        print_fn=lambda text, **_: parts.append(text), expand_nested=True
    )
    parts += ["Trainable variables:", report.format_table(rows)]
    parts += ["Totals:", report.format_table(totals)]
    return "\n".join(parts)


def placement(model) -> str:
    """The text that `log_device_placement` prints: devices and their variables."""
    sizes = collections.defaultdict(lambda: [0, 0, 0])
    for variable in model.backbone.variables:
        for copy in model.strategy.experimental_local_results(variable.value):
            _add(sizes[copy.device], 0, copy)
    for array in model.head.arrays().values():
        for tile in _tiles(array, model.strategy):
            _add(sizes[tile.device], 1, tile)
    rows = [
        (
            device or "unplaced",
            f"{network:,} numbers of the network, {head:,} of the head; {size:,} bytes",
        )
        for device, (network, head, size) in sorted(sizes.items())
    ]
    return report.format_table(rows)


def _tiles(array, strategy):
    """The variables of an array's rows on this worker."""
    if hasattr(array, "tiles"):
        return [tile for tiles in array.tiles.values() for tile in tiles]
    return strategy.experimental_local_results(array.variable.value)


def _add(entry, kind, tensor):
    count, size = _size([tensor])
    entry[kind] += count
    entry[2] += size


def _size(arrays):
    """(numbers, bytes) of variables, tensors or rows."""
    counts = [(math.prod(array.shape), array.dtype) for array in arrays]
    return (
        sum(count for count, _ in counts),
        sum(count * tf.as_dtype(dtype).size for count, dtype in counts),
    )


def _sum(values):
    return float(np.asarray(values, np.float32).sum(dtype=np.float64))


def _described(shape, total):
    text = "×".join(map(str, shape)) or "scalar"
    return f"{text:<20} sum {total:.6g}"
