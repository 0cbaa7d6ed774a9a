"""Class rows that are read from shards when they are needed."""

import weakref

import numpy as np

from plsc_tf.checkpoints import rows
from plsc_tf.checkpoints.importers.layers import sharded_rows

SIZES = (3, 4, 1, 5, 2)
WHOLE = np.arange(15 * 2, dtype=np.float64).reshape(15, 2)


class Watched(np.ndarray):
    """An array that can be referred to weakly."""


def test_few_shards_are_in_memory_at_a_time(monkeypatch):
    monkeypatch.setattr(rows, "PIECE_BYTES", 1)  # one row at a time
    opened = []

    def shard(first, size):
        def open():
            array = WHOLE[first : first + size].copy().view(Watched)
            opened.append(weakref.ref(array))
            return array

        return "file", (size, 2), open

    parts = zip(np.cumsum((0, *SIZES[:-1])), SIZES, strict=True)
    sharded = sharded_rows([shard(*part) for part in parts], SIZES, (2,))
    for number, piece in enumerate(sharded.pieces(0, 15)):
        np.testing.assert_array_equal(piece, WHOLE[number : number + 1])
        assert sum(array() is not None for array in opened) <= 2
    assert len(opened) == len(SIZES)  # each was read once
