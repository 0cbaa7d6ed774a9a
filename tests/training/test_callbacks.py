"""Verification, checkpoints and the log while training."""

import logging

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.training.callbacks import TrainingLog, format_seconds


class Pairs:
    """Twelve pairs of the first pictures: each with itself or with another."""

    name = "few"

    def __init__(self, images):
        self._images = images
        self.left = np.arange(12)
        self.same = np.arange(12) % 2 == 0
        self.right = np.where(self.same, self.left, self.left + 3)

    def decoded(self, image_size=None):
        return self._images


def fit(model, pictures, callbacks, epochs=2, **options):
    return model.fit(
        *pictures,
        batch_size=5,
        epochs=epochs,
        verbose=0,
        callbacks=callbacks,
        **options,
    )


def test_verification_joins_the_logs_of_every_epoch(make_model, pictures):
    model = make_model()
    verification = plsc_tf.Verification({"few": Pairs(pictures[0])})
    history = fit(model, pictures, [verification])
    result = plsc_tf.verify_pairs(model.embed, Pairs(pictures[0]))
    assert len(history.history["few_accuracy"]) == 2
    assert history.history["few_accuracy"][-1] == result.accuracy
    assert verification.results["few"].num_pairs == 12


def test_verification_every_n_steps(make_model, pictures):
    steps = []

    class Counting(plsc_tf.Verification):
        def verify(self, step):
            steps.append(step)
            return super().verify(step)

    fit(
        make_model(), pictures, [Counting({"few": Pairs(pictures[0])}, every_n_steps=3)]
    )
    assert steps == [3, 6]  # of 8


def test_checkpoints_keep_the_newest_and_restore_into_a_fresh_model(
    make_model, pictures, tmp_path
):
    model = make_model()
    checkpoint = plsc_tf.Checkpoint(str(tmp_path), max_to_keep=2)
    fit(model, pictures, [checkpoint], epochs=4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2", "3"]
    fresh = make_model(replicas=3)
    start = plsc_tf.Checkpoint(str(tmp_path)).restore(fresh)
    assert start == {"initial_epoch": 4, "initial_step": 0}
    np.testing.assert_array_equal(
        fresh.head.weights_as_numpy(), model.head.weights_as_numpy()
    )
    images = pictures[0]
    np.testing.assert_allclose(fresh.embed(images), model.embed(images), atol=1e-5)


def test_a_directory_of_another_training_is_refused(make_model, pictures, tmp_path):
    fit(make_model(), pictures, [plsc_tf.Checkpoint(str(tmp_path))])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match="checkpoints of another training"):
        fit(make_model(), pictures, [plsc_tf.Checkpoint(str(tmp_path))])
    assert sorted(tmp_path.rglob("*")) == before


def test_a_resumed_training_is_that_of_an_unbroken_one(make_model, tmp_path):
    """Momentum, dropout and a falling rate, saved at step 6 of 12, in mid-epoch."""
    data = plsc_tf.load(
        "mock", batch_size=8, image_size=(16, 16), num_classes=5, num_examples=30
    )
    schedule = keras.optimizers.schedules.CosineDecay(0.05, 12)

    def model(replicas):
        return make_model(
            replicas, optimizer=lambda: plsc_tf.Momentum(schedule), dropout=0.3
        )

    whole = model(2)
    whole.fit(data, epochs=3, verbose=0)
    first = model(2)
    saver = plsc_tf.Checkpoint(str(tmp_path), every_n_steps=6)
    first.fit(data, epochs=3, verbose=0, callbacks=[saver], stop_at_step=6)
    second = model(2)
    start = plsc_tf.Checkpoint(str(tmp_path)).restore(second)
    assert start == {"initial_epoch": 1, "initial_step": 2}
    second.fit(data, epochs=3, verbose=0, **start)
    assert second.position.global_step == 12
    np.testing.assert_allclose(
        second.head.weights_as_numpy(), whole.head.weights_as_numpy(), rtol=1e-5
    )


def test_the_log_tells_loss_rate_speed_and_the_time_left(make_model, pictures, caplog):
    log = TrainingLog(every_n_steps=2, total_steps=8, global_batch_size=5)
    with caplog.at_level(logging.INFO, logger="absl"):
        fit(make_model(), pictures, [log])
    lines = [r.message for r in caplog.records if "images/s" in r.message]
    assert len(lines) == 4
    assert "epoch 0  step 2/8  loss " in lines[0]
    for word in ("lr 0.05", "images/s", "ETA 0:"):
        assert word in lines[0]
    assert log.images_per_second > 0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (61.4, "1:01"), (3723, "1:02:03")]
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text
