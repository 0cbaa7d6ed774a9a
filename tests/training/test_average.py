"""Moving averages of the weights."""

import signal
import types

import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.jobs import train as run, trained
from plsc_tf.options.settings import Settings
from plsc_tf.training import state
from plsc_tf.training.average import Averaging
from plsc_tf.training.ending import Termination
from tests.jobs.tiny_run import settings
from tests.marks import slow
from tests.training import checkpointed


def weights(model):
    found = [np.array(w) for w in model.backbone.trainable_variables]
    return [*found, model.head.arrays()["weight"].read(0, 5)]


def averages(model):
    found = model.trainer.updater.averages
    rows = [averages.read(0, 5) for _, averages in found.rows]
    return [np.array(v) for v in found.variables] + rows


def train(model, pictures, steps=3):
    """Trains, and returns the weights after each step."""
    images, labels = pictures
    after = []
    for step in range(steps):
        batch = np.arange(step * 5, step * 5 + 10) % len(labels)
        model.train_on_batch(images[batch], labels[batch])
        after.append(weights(model))
    return after


@pytest.mark.parametrize("replicas", [2, slow(1)])
def test_averages_follow_their_formula(make_model, pictures, replicas):
    model = make_model(replicas, averaging=Averaging(0.2))
    expected = weights(model)
    for now, kept in zip(train(model, pictures), (1 / 10, 2 / 11, 0.2), strict=True):
        pairs = zip(expected, now, strict=True)
        expected = [kept * e + (1 - kept) * w for e, w in pairs]
    for one, two in zip(averages(model), expected, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_averages_and_weights_change_places_bit_for_bit(make_model, pictures):
    model = make_model(averaging=Averaging(0.9))
    train(model, pictures, 1)
    before, kept = weights(model), averages(model)
    with model.trainer.averaged():
        with model.trainer.averaged():  # as verifying within an export
            assert all(map(np.array_equal, weights(model), kept))
        embedded = model.embed(pictures[0])
    assert all(map(np.array_equal, weights(model), before))
    assert all(map(np.array_equal, averages(model), kept))
    assert not np.allclose(embedded, model.embed(pictures[0]))


def impatient():
    """What a user does, twice, while a weight is read."""
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    return tf.zeros([1])


def test_ctrl_c_does_not_mix_weights_and_averages(make_model, pictures):
    model = make_model(averaging=Averaging(0.9))
    train(model, pictures, 1)
    before, kept = weights(model), averages(model)
    rows = model.trainer.updater.averages.rows
    weight = types.SimpleNamespace(read_value=impatient, assign=lambda value: None)
    rows.insert(0, (types.SimpleNamespace(tiles={0: [weight]}),) * 2)
    termination = Termination()
    termination.set_model(model)
    termination.listen()
    try:
        with model.trainer.averaged():
            pass
    finally:
        termination.stop_listening()
    with pytest.raises(KeyboardInterrupt):
        termination.on_train_batch_begin(0)
    del rows[0]
    assert all(map(np.array_equal, weights(model), before))
    assert all(map(np.array_equal, averages(model), kept))


def test_sampled_rows_only_are_averaged(pictures):
    model = checkpointed.build(1, classes=50, sample_rate=0.1)
    model.compile(model.optimizer, averaging=Averaging(0.5))
    rows = model.head.arrays()["weight"]
    first = rows.read(0, 50)
    model.train_on_batch(pictures[0][:4, :8, :8], pictures[1][:4])
    now = rows.read(0, 50)
    average = model.trainer.updater.slots()["weight/average"].read(0, 50)
    # The first update keeps a tenth.
    np.testing.assert_allclose(average, first / 10 + now * 9 / 10, atol=1e-6)
    assert 0 < np.count_nonzero((now != first).any(1)) < 50


def test_a_decay_out_of_range_is_refused():
    with pytest.raises(ValueError, match="between 0 and 1"):
        Averaging(1.0)


def test_a_resume_may_end_averages_but_not_begin_them(make_model, tmp_path, caplog):
    averaged, plain = make_model(1, averaging=Averaging(0.9)), make_model(1)
    for name, model in (("averaged", averaged), ("plain", plain)):
        state.save(str(tmp_path / name), model, {})
    state.restore(str(tmp_path / "averaged"), plain)
    assert "averages of the weights, but this run drops them" in caplog.text
    with pytest.raises(ValueError, match="no averages of the weights"):
        state.restore(str(tmp_path / "plain"), averaged)


def test_a_run_without_averages_in_use_is_loaded_so(tmp_path):
    folder, options = str(tmp_path / "run"), {"ema_decay": 0.99, "ema_in_use": False}
    run.train(settings(folder, num_replicas=1, stop_at_step=2, **options))
    options = {"checkpoint_dir": folder, "num_replicas": 1}
    asked = Settings.from_values(**options)
    of_weights = Settings.from_values(**options, ema_in_use=False)
    model, raw = (trained.load(one).model for one in (asked, of_weights))
    np.testing.assert_equal(model.backbone.get_weights(), raw.backbone.get_weights())
