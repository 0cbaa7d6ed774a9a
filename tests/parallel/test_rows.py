"""Row splits and row-split arrays."""

import concurrent.futures

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.parallel import rows as rows_module
from plsc_tf.parallel.rows import ReplicatedRows, RowSplit, ShardedRows
from tests.checkpoints.small import make_rows


@pytest.mark.parametrize(
    ("rows", "shards", "sizes"),
    [
        (10, 3, [4, 3, 3]),
        (9, 3, [3, 3, 3]),
        (4, 4, [1, 1, 1, 1]),
        (7, 4, [2, 2, 2, 1]),  # PLSC's ceil split gives 2, 2, 2, 1
        (9, 4, [3, 2, 2, 2]),  # PLSC's ceil split gives 3, 3, 3, 0
    ],
)
def test_split_differs_by_at_most_one_row(rows, shards, sizes):
    split = RowSplit(rows, shards)
    assert [split.size(s) for s in range(shards)] == sizes
    firsts = [split.first(s) for s in range(shards)]
    assert firsts == [sum(sizes[:s]) for s in range(shards)]


def test_more_shards_than_rows_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match=r"num_rows=2, num_shards=3.*fewer replicas"):
        RowSplit(2, 3)


@pytest.mark.parametrize("replicas", [1, 2, 3, 4])
def test_every_replica_holds_its_rows_only_and_the_whole_reads_back(replicas):
    strategy = plsc_tf.strategy(replicas)
    whole = np.arange(11 * 2, dtype=np.float32).reshape(11, 2)
    with strategy.scope():  # users build heads inside a scope
        rows = ShardedRows(strategy, lambda a, b: whole[a:b], 11, "w")
    assert rows.shape == (11, 2)
    # 11 rows of 2 float32 numbers are 88 bytes, held once.
    assert sum(rows.bytes_per_replica()) == 88
    assert max(rows.bytes_per_replica()) == -(-11 // replicas) * 8
    assert len({tiles[0].device for tiles in rows.tiles.values()}) == replicas
    np.testing.assert_array_equal(rows.read(0, 11), whole)


@pytest.mark.parametrize("layout", [{"tile_rows": 3}, {"sparse": True}])
def test_rows_are_read_and_written_across_tiles(layout):
    whole = np.arange(15 * 2, dtype=np.float32).reshape(15, 2)
    rows = make_rows(2, whole, **layout)
    # 15 rows on two replicas are 8 and 7.
    sizes = [[tile.shape[0] for tile in tiles] for tiles in rows.tiles.values()]
    assert sizes == ([[8], [7]] if "sparse" in layout else [[3, 3, 2], [3, 3, 1]])
    for low in range(15):
        for high in range(low + 1, 16):
            np.testing.assert_array_equal(rows.read(low, high), whole[low:high])
            rows.write(low, 100 + whole[low:high])
            changed = whole.copy()
            changed[low:high] += 100
            np.testing.assert_array_equal(rows.read(0, 15), changed)
            rows.write(low, whole[low:high])


def reads_copy(rows):
    """Whether each read copies the first tile instead of sharing its memory."""
    held = [next(rows.held().pieces(0, rows.tile_rows)) for _ in range(2)]
    return not np.shares_memory(*held)


def test_reads_do_not_copy_a_tile_that_was_written_in_pieces():
    whole = np.arange(12 * 2, dtype=np.float32).reshape(12, 2)
    rows = make_rows(2, whole, tile_rows=6)
    # What a restore from other shards does, and `set_weights_from_numpy`.
    for low in range(0, 12, 4):
        rows.write(low, -whole[low : low + 4])
    assert not reads_copy(rows)
    np.testing.assert_array_equal(rows.read(0, 12), -whole)


@pytest.mark.parametrize("sharded", [True, False])
def test_threads_overwrite_parts_of_tiles_one_after_the_other(sharded):
    # TensorFlow exchanges the places of parts that are overwritten at once, but too
    # seldom to be waited for: one of 4,000 pairs.
    strategy = plsc_tf.strategy(2)
    if sharded:
        rows = ShardedRows(strategy, lambda a, b: tf.zeros([b - a, 2]), 8, "w")
    else:
        with strategy.scope():
            rows = ReplicatedRows(keras.Variable(np.zeros([8, 2], np.float32)))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        with rows_module.OVERWRITING:
            part = pool.submit(rows.write, 4, np.ones([2, 2], np.float32))
            with pytest.raises(TimeoutError):
                part.result(timeout=0.2)
        part.result(timeout=60)
    np.testing.assert_array_equal(rows.read(0, 8)[:, 0], [0, 0, 0, 0, 1, 1, 0, 0])


def test_a_large_tile_is_filled_in_parts():
    asked = []

    def initial_rows(low, high):
        asked.append(high - low)
        return np.arange(low, high, dtype=np.float32)

    rows = ShardedRows(plsc_tf.strategy(1), initial_rows, 150_000, "b")
    np.testing.assert_array_equal(rows.read(0, 150_000), np.arange(150_000))
    assert asked == [1, *[16_384] * 9, 2_544]  # one row shows the shape
    assert not reads_copy(rows)


@pytest.mark.parametrize("layout", [{"tile_rows": 2}, {"sparse": True}])
def test_rows_of_one_number_are_split_alike(layout):
    rows = make_rows(3, np.ones((7, 2), np.float32), **layout)
    slots = rows.filled(0.1, "slot")
    np.testing.assert_array_equal(slots.read(0, 7), np.full((7, 2), 0.1, np.float32))
    half = rows.filled(0.1, "slot", "bfloat16")
    # The nearest number with 8 bits; numpy gets it as float32.
    for one in (half, half.held()):
        np.testing.assert_array_equal(one.read(0, 7), np.full((7, 2), 0.10009765625))
        assert one.dtype == one.read(0, 7).dtype == "float32"

    def places(of):
        return [[(t.device, t.shape) for t in tiles] for tiles in of.tiles.values()]

    for other, size in ((slots, 4), (half, 2)):
        assert places(other) == places(rows)
        assert other.bytes_per_replica() == [3 * 2 * size, 2 * 2 * size, 2 * 2 * size]
    half.write(2, np.full((3, 2), 0.3, np.float32))
    np.testing.assert_array_equal(half.read(1, 6)[1:4], np.full((3, 2), 0.30078125))


def test_the_same_call_gives_the_same_strategy():
    assert plsc_tf.strategy(2) is plsc_tf.strategy(2)


def test_impossible_replica_counts_are_explained():
    with pytest.raises(ValueError, match="num_replicas=-1"):
        plsc_tf.strategy(-1)
    with pytest.raises(RuntimeError, match="64 logical CPU devices"):
        plsc_tf.strategy(64)
