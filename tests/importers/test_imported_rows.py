"""Class rows that are read from shards when they are needed."""

import weakref

import numpy as np
import pytest

from plsc_tf.checkpoints.importers.rows import Shard, ShardedFiles

SIZES = (3, 4, 1, 5, 2)
WHOLE = np.arange(15 * 2, dtype=np.float64).reshape(15, 2)


class Watched(np.ndarray):
    """An array that can be referred to weakly."""


@pytest.fixture
def opened():
    return []


@pytest.fixture
def rows(opened):
    def shard(first, size):
        def open():
            array = WHOLE[first : first + size].copy().view(Watched)
            opened.append(weakref.ref(array))
            return array

        return Shard(size, open)

    firsts = np.cumsum((0, *SIZES[:-1]))
    parts = zip(firsts, SIZES, strict=True)
    return ShardedFiles([shard(*part) for part in parts], (2,))


def test_any_rows_across_shards(rows):
    assert rows.shape == (15, 2)
    for low in range(16):
        for high in range(low, 16):
            found = rows.read(low, high)
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, WHOLE[low:high])


def test_pieces_make_the_whole(rows, monkeypatch):
    monkeypatch.setattr("plsc_tf.checkpoints.importers.rows.PIECE_BYTES", 4 * 2 * 4)
    pieces = list(rows.pieces(2, 15))
    assert [len(piece) for piece in pieces] == [4, 4, 4, 1]
    np.testing.assert_array_equal(np.concatenate(pieces), WHOLE[2:])


def test_few_shards_are_in_memory_at_a_time(rows, opened, monkeypatch):
    monkeypatch.setattr("plsc_tf.checkpoints.importers.rows.PIECE_BYTES", 1)
    for _ in rows.pieces(0, 15):
        assert sum(array() is not None for array in opened) <= 2
    assert len(opened) == len(SIZES)  # each was read once
