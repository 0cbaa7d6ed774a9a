"""A disk that is full in the middle of a save, which is a small one in memory."""

import os
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.checkpoints import catalog
from plsc_tf.training import state
from tests.networks import compiled, flat
from tests.small_disk import mounted


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    """A file system of 1 MiB."""
    with mounted(tmp_path_factory.mktemp("disk"), "1m") as folder:
        yield folder


@pytest.fixture
def run(disk):
    """The folder of a run on it."""
    folder = disk / "run"
    yield folder
    for path in disk.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="module")
def model():
    """Checkpoints of about 60 kB: network, counters, rows and a slot."""
    head = plsc_tf.ShardedHead(51, scale=8.0)
    return compiled(lambda: flat((4, 4, 3), keras.layers.Dense(64)), head)


class Fill(keras.callbacks.Callback):
    """Leaves room for a part of the third save, and later for all again."""

    def __init__(self, disk, part, until=None):
        super().__init__()
        self.path, self.part, self.until = disk / "x", part, until
        self.empty = self.free()

    def free(self):
        return shutil.disk_usage(self.path.parent).free

    def on_train_batch_end(self, batch, logs=None):
        if self.model.trainer.position.global_step == 3:
            self.model.trainer.finish_saving()
            size = (self.empty - self.free()) / 2
            self.path.write_bytes(b"x" * int(self.free() - self.part * size))
        if self.model.trainer.position.global_step == self.until:
            self.path.unlink()


def fit(model, run, fill, **options):
    images = np.random.default_rng(0).integers(0, 256, (60, 4, 4, 3)).astype(np.uint8)
    data = tf.data.Dataset.from_tensor_slices((images, np.arange(60) % 51)).batch(10)
    checkpoint = plsc_tf.Checkpoint(
        run, every_n_steps=1, every_n_epochs=0, max_to_keep=0, **options
    )
    model.trainer.position.global_step = 0
    model.fit(data, epochs=1, verbose=0, callbacks=[fill, checkpoint])


def steps(run):
    """Steps of the checkpoints, all of which are whole and can be restored."""
    found = catalog.find_all(str(run))
    names = sorted(path.name for path in run.iterdir())
    # Nothing but checkpoints: no remains of the one that failed.
    assert names == [os.path.basename(path) for _, path in found]
    return [step for step, _ in found]


# Nothing fits, ..., all but one page does.
PARTS = [0, 0.1, 0.3, 0.5, 0.7, 0.95]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("background", [True, False])
def test_training_stops_and_older_checkpoints_are_as_they_were(
    model, disk, run, part, background
):
    with pytest.raises(OSError, match="No space left.*Older checkpoints") as caught:
        fit(model, run, Fill(disk, part), background=background)
    assert caught.value.errno == 28
    assert 3 <= model.trainer.position.global_step <= 5
    assert steps(run) == [1, 2]
    state.restore(catalog.newest(str(run)), model)
    assert model.trainer.position.global_step == 2


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("background", [True, False])
def test_training_goes_on_and_saves_again_when_there_is_room(
    model, disk, run, part, background
):
    fill = Fill(disk, part, until=5)
    fit(model, run, fill, background=background, on_error="continue")
    assert model.trainer.position.global_step == 6
    found = steps(run)
    # In the background step 4's may still be under way when there is room again.
    assert found in ([1, 2, 5, 6], [1, 2, 4, 5, 6])
    assert catalog.newest(str(run)) == str(run / "step_00000006")
    state.restore(str(run / "step_00000006"), model)
