"""What of a checkpoint's backbone fits another network."""

import keras
import numpy as np
import pytest

from plsc_tf.checkpoints import reader
from tests.checkpoints import small


def network(width=3, outputs=2, names=("first", "second"), extra=False):
    layers = [keras.Input((4,)), keras.layers.Dense(width, name=names[0])]
    if extra:
        layers.append(keras.layers.Dense(width, name="extra"))
    return keras.Sequential([*layers, keras.layers.Dense(outputs, name=names[1])])


def save(path, model):
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.standard_normal(weight.shape))
    small.save(path, network=model, kind="weights")
    return [weight.numpy() for weight in model.weights]


def test_weights_are_matched_by_the_names_of_their_layers(tmp_path):
    kernel, bias, *_ = save(tmp_path / "0", network())
    other = network(outputs=5, extra=True)
    before = [weight.numpy() for weight in other.weights]
    loaded, kept, unused = reader.load_matching(str(tmp_path / "0"), other)
    assert loaded == ["first/0", "first/1"]
    assert kept == {
        "extra/0": "not in the checkpoint",
        "extra/1": "not in the checkpoint",
        "second/0": "(3, 2) in the checkpoint, (3, 5) here",
        "second/1": "(2,) in the checkpoint, (5,) here",
    }
    assert unused == ["second/0", "second/1"]
    np.testing.assert_array_equal(other.layers[0].kernel, kernel)
    np.testing.assert_array_equal(other.layers[0].bias, bias)
    np.testing.assert_equal(other.get_weights()[2:], before[2:])


def test_names_that_keras_makes_up_are_matched_by_place(tmp_path):
    # As in another process, where Keras has counted further: its second layer has
    # the name that the first one has here.
    values = save(tmp_path / "0", network(names=("dense_7", "dense_8"), outputs=3))
    other = network(names=("dense_8", "dense_9"), outputs=3)
    _, kept, unused = reader.load_matching(str(tmp_path / "0"), other)
    assert not kept and not unused
    np.testing.assert_equal(other.get_weights(), values)


# Otherwise, only the last block is loaded, and no line says so.
def test_layers_of_the_same_name_in_models_within_the_network(tmp_path):
    def blocks():
        return keras.Sequential([keras.Input((4,)), *[network(4, 4) for _ in range(3)]])

    values, other = save(tmp_path / "0", blocks()), blocks()
    loaded, _, _ = reader.load_matching(str(tmp_path / "0"), other)
    assert len(loaded) == len(values) == 12
    np.testing.assert_equal(other.get_weights(), values)


def test_another_network_is_refused_and_left(tmp_path):
    save(tmp_path / "0", network())
    other = network(names=("third", "fourth"))
    before = [weight.numpy() for weight in other.weights]
    with pytest.raises(ValueError, match="none of its 4 backbone weights fits"):
        reader.load_matching(str(tmp_path / "0"), other)
    np.testing.assert_equal(other.get_weights(), before)
