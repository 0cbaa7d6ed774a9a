"""Verification and the log while training."""

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.reporting.metrics_files import MetricsFiles
from plsc_tf.reporting.recorder import Recorder
from plsc_tf.training.callbacks import TrainingLog


class Pairs:
    """Twelve pairs of the first pictures: each with itself or with another."""

    name, mirror = "few", True

    def __init__(self, images):
        self._images = images
        self.left = np.arange(12)
        self.same = np.arange(12) % 2 == 0
        self.right = np.where(self.same, self.left, self.left + 3)

    def decoded(self, image_size, rows):
        return self._images[rows]


def fit(model, pictures, callbacks, epochs=2, **options):
    options |= {"batch_size": 5, "epochs": epochs, "verbose": 0}
    return model.fit(*pictures, callbacks=callbacks, **options)


def training_log(every_n_steps=2, sink=None, **options):
    """The log of eight steps; it writes lines, or to a sink."""
    if sink is not None:
        options |= {"recorder": Recorder([sink]), "lines": False}
    options |= {"total_steps": 8, "global_batch_size": 5}
    return TrainingLog(every_n_steps=every_n_steps, **options)


def test_verification_joins_the_logs_of_every_epoch(any_model, pictures):
    verification = plsc_tf.Verification({"few": Pairs(pictures[0])})
    history = fit(any_model, pictures, [verification])
    result = plsc_tf.verify_pairs(any_model.embed, Pairs(pictures[0]))
    assert len(history.history["few_accuracy"]) == 2
    assert history.history["few_accuracy"][-1] == result.accuracy
    assert verification.results["few"].num_pairs == 12


@pytest.mark.parametrize(
    ("every_n_steps", "after_epochs", "in_logs", "steps"),
    [(3, False, 0, [3, 6]), (3, True, 2, [3, 4, 6, 8]), (2, False, 2, [2, 4, 6, 8])],
)
def test_the_logs_tell_of_the_weights_that_an_epoch_ends_with(
    any_model, pictures, caplog, every_n_steps, after_epochs, in_logs, steps
):
    when = {"every_n_steps": every_n_steps, "after_epochs": after_epochs}
    verification = plsc_tf.Verification({"few": Pairs(pictures[0])}, **when)
    history = fit(any_model, pictures, [verification])  # steps 4 and 8 end epochs
    assert len(history.history.get("few_accuracy", [])) == in_logs
    assert [caplog.text.count(f"step {step}] XN") for step in steps] == [1] * len(steps)
    assert caplog.text.count("XNorm") == len(steps)


@pytest.mark.parametrize(("planned", "told"), [(4, 0), (5, 1)])
def test_an_epoch_of_another_length_than_planned_is_told_once(
    any_model, pictures, caplog, planned, told
):
    log = training_log(steps_per_epoch=planned)
    # A resume in mid-epoch, two epochs, and the end in the midst of another.
    fit(any_model, pictures, [log], epochs=3, initial_step=2, stop_at_step=8)
    text = "Epoch 0 had 4 steps instead of the planned 5"
    assert caplog.text.count(text) == caplog.text.count("the planned") == told


def test_the_log_tells_loss_rate_speed_and_the_time_left(any_model, pictures, caplog):
    log = training_log()
    fit(any_model, pictures, [log])
    lines = [r.message for r in caplog.records if "images/s" in r.message]
    assert len(lines) == 4
    assert "epoch 0  step 2/8  loss " in lines[0]
    for word in ("lr 0.05", "images/s", "ETA 0:"):
        assert word in lines[0]
    assert log.images_per_second > 0


def test_the_rate_of_a_line_is_that_of_its_last_step(make_model, pictures, tmp_path):
    schedule = keras.optimizers.schedules.PolynomialDecay(0.08, 8, 0.0)
    sink = MetricsFiles(str(tmp_path))
    log = training_log(3, sink)
    fit(make_model(optimizer=lambda: plsc_tf.Momentum(schedule)), pictures, [log])
    rates = {row["step"]: row.get("learning_rate") for row in sink.rows}
    rates.pop(4)  # the first epoch's own line
    # Step k of 8 is made with what is left after k - 1 of them.
    assert rates == pytest.approx({3: 0.06, 6: 0.03, 8: 0.01})


def test_figures_are_means_of_a_line_and_speed_is_without_the_first_step(
    any_model, pictures, tmp_path
):
    every, each = (MetricsFiles(str(tmp_path)) for _ in range(2))
    fit(any_model, pictures, [training_log(4, every), training_log(1, each)])
    losses = [row["loss"] for row in each.rows]
    assert [row["step"] for row in every.rows] == [4, 8]
    means = [np.mean(losses[:4]), np.mean(losses[4:])]
    assert [row["loss"] for row in every.rows] == pytest.approx(means)
    assert every.rows[0]["learning_rate"] == pytest.approx(0.05)
    assert "images_per_second" not in each.rows[0]
    assert all(row["images_per_second"] > 0 for row in each.rows[1:])
    assert every.rows[0]["epoch/loss"] == pytest.approx(np.mean(losses[:4]))
    # The time of the epoch's steps, which are four.
    for row in (every.rows[0], every.rows[1]):
        assert row["epoch/seconds"] > 0
        assert row["epoch/seconds"] == pytest.approx(4 * row["epoch/seconds_per_step"])
