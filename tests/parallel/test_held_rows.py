"""Rows as they were at one moment, while training goes on."""

import functools
import weakref

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.checkpoints import writer
from plsc_tf.parallel import rows as rows_module
from plsc_tf.parallel.rows import ReplicatedRows
from tests.checkpoints.small import make_content, make_rows
from tests.training import checkpointed
from tests.waiting import wait_for

WHOLE = np.arange(22, dtype=np.float32).reshape(11, 2)


def make(replicas=2, **layout):
    return make_rows(replicas, WHOLE, **layout)


@pytest.mark.parametrize("options", [{}, {"sample_rate": 0.5}])
def test_values_stay_in_training(options):
    """The fused update is compiled for tiles of as many rows as these."""
    model = checkpointed.build(1, classes=4100, tile_rows=2050, **options)
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3)).astype(np.uint8)
    labels = np.arange(8) * 500
    model.train_on_batch(images, labels)
    arrays = {**model.head.arrays(), **model.trainer.updater.slots()}
    before = {name: rows.read(0, 4100) for name, rows in arrays.items()}
    held = {name: rows.held() for name, rows in arrays.items()}
    for _ in range(2):
        model.train_on_batch(images, labels)
    for name, rows in arrays.items():
        found = held[name].read(0, 4100)
        np.testing.assert_array_equal(found, before[name], err_msg=name)
        assert not np.array_equal(rows.read(0, 4100), before[name])


def test_rows_that_are_whole_on_every_replica_are_held_too():
    with plsc_tf.strategy(2).scope():
        variable = keras.Variable(WHOLE)
    rows = ReplicatedRows(variable)
    held = rows.held()
    assert (held.shape, held.dtype) == ((11, 2), "float32")
    # Code for sharded rows fails instead of taking these for one shard.
    assert not hasattr(rows, "split") and not hasattr(rows, "filled")
    rows.write(3, np.zeros((2, 2), np.float32))
    variable.assign(variable + 1)
    np.testing.assert_array_equal(held.read(0, 11), WHOLE)
    np.testing.assert_array_equal(rows.read(3, 5), np.ones((2, 2)))


@pytest.mark.parametrize("hold", [False, True])
def test_pieces_are_small_and_in_order(monkeypatch, hold):
    monkeypatch.setattr(rows_module, "PIECE_BYTES", 2 * 8 + 3)  # two rows
    rows = make(replicas=3, tile_rows=3)
    pieces = list((rows.held() if hold else rows).pieces(1, 10))
    # Tiles of 3 + 1, 3 + 1 and 3 rows.
    assert [len(piece) for piece in pieces] == [2, 1, 2, 1, 1, 2]
    np.testing.assert_array_equal(np.concatenate(pieces), WHOLE[1:10])


def test_memory_is_let_go_when_the_save_ends(tmp_path):
    held = make(tile_rows=3).held()
    content = make_content(0, array=held)
    references = [weakref.ref(tile) for tiles in held.tiles.values() for tile in tiles]
    saver = writer.BackgroundSaver()
    saver.submit(functools.partial(writer.save, str(tmp_path / "0"), content))
    del held, content
    saver.wait()
    # The saver's thread may still be about to end.
    wait_for(lambda: all(reference() is None for reference in references))
