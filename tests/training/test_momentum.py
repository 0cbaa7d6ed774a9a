"""PLSC's momentum."""

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.training import state
from tests.training.checkpointed import build, fit


def test_three_steps_by_hand_with_a_change_of_rate():
    # v = 0.9 v + g + 0.1 w;  w -= lr v, from w = 1, v = 0, with g = 1, 1, 0:
    # lr 0.5: v = 1.1                        w = 0.45
    # lr 0.5: v = 0.99 + 1 + 0.045 = 2.035   w = -0.5675
    # lr 0.1: v = 1.8315 + 0 - 0.05675 = 1.77475   w = -0.744975
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.1])
    variable = keras.Variable(np.array([1.0], np.float32))
    optimizer = plsc_tf.Momentum(schedule, momentum=0.9, l2=0.1)
    seen = []
    for gradient in (1.0, 1.0, 0.0):
        optimizer.apply([np.array([gradient], np.float32)], [variable])
        seen.append(float(variable.numpy()[0]))
    np.testing.assert_allclose(seen, [0.45, -0.5675, -0.744975], rtol=1e-6)


def test_without_momentum_there_is_no_velocity_to_update_or_restore(tmp_path):
    # w -= lr (g + l2 w) = 0.5 (1 + 0.1)
    variable = keras.Variable(np.array([1.0], np.float32))
    optimizer = plsc_tf.Momentum(0.5, momentum=0.0, l2=0.1)
    optimizer.apply([np.array([1.0], np.float32)], [variable])
    np.testing.assert_allclose(variable.numpy(), [0.45], rtol=1e-6)
    assert len(optimizer.variables) == 2  # iterations and learning rate
    # Earlier versions saved velocities without momentum too.
    trained, path = build(1), str(tmp_path / "saved")
    fit(trained, epochs=1)
    state.save(path, trained, {})
    model = build(1, optimizer=lambda: plsc_tf.Momentum(0.05, momentum=0.0))
    state.restore(path, model)
    assert model.trainer.updater.slots() == {}
    assert model.optimizer.iterations.numpy() == 4
    expected = trained.head.weights_as_numpy()
    np.testing.assert_array_equal(model.head.weights_as_numpy(), expected)


def test_config_round_trip():
    optimizer = plsc_tf.Momentum(0.2, momentum=0.8, l2=0.01)
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert copy.get_config() == optimizer.get_config()


@pytest.mark.parametrize("arguments", [{"momentum": 1.0}, {"l2": -1e-4}])
def test_bad_arguments_are_explained(arguments):
    with pytest.raises(ValueError, match="Received"):
        plsc_tf.Momentum(0.1, **arguments)
