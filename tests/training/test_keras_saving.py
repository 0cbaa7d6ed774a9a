"""Keras's and TensorFlow's own ways of saving: none writes a file without the head."""

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

WAYS = {
    "save": lambda m, path: m.save(f"{path}.keras"),
    "save as HDF5": lambda m, path: m.save(f"{path}.h5"),
    "save_weights": lambda m, path: m.save_weights(f"{path}.weights.h5"),
    "load_weights": lambda m, path: m.load_weights(f"{path}.weights.h5"),
    "export": lambda m, path: m.export(path),
    "save_model": lambda m, path: keras.saving.save_model(m, f"{path}.keras"),
    "save_model as HDF5": lambda m, path: keras.saving.save_model(m, f"{path}.h5"),
    "get_weights": lambda m, path: m.get_weights(),
    "set_weights": lambda m, path: m.set_weights([]),
    "to_json": lambda m, path: m.to_json(),
    "pickle": lambda m, path: pickle.dumps(m),
    "deepcopy": lambda m, path: copy.deepcopy(m),
    "Checkpoint of the model": lambda m, path: tf.train.Checkpoint(m).save(path),
    "Checkpoint with the model": lambda m, path: tf.train.Checkpoint(a=m).write(path),
    "saved_model": lambda m, path: tf.saved_model.save(m, path),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_saved_without_the_head(model, tmp_path, way):
    called = way if way.endswith("_weights") else r"\w+"
    refusal = rf"^Classifier\.{called} would .*weights of the head.*plsc_tf\.Check"
    with pytest.raises(ValueError, match=refusal):
        WAYS[way](model, str(tmp_path / "a"))
    # Keras may have opened a file before; there is nothing in it.
    assert sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file()) < 2000


def test_a_file_of_weights_is_not_loaded_into_a_part_of_the_model(model, tmp_path):
    path = str(tmp_path / "backbone.weights.h5")
    model.backbone.save_weights(path)
    with pytest.raises(ValueError, match=r"plsc_tf\.Checkpoint"):
        keras.saving.load_weights(model, path)


CALLBACKS = {
    "ModelCheckpoint": lambda path: keras.callbacks.ModelCheckpoint(f"{path}.keras"),
    "ModelCheckpoint of weights": lambda path: keras.callbacks.ModelCheckpoint(
        f"{path}.weights.h5", save_weights_only=True
    ),
    "BackupAndRestore": keras.callbacks.BackupAndRestore,
    "EarlyStopping": lambda path: keras.callbacks.EarlyStopping(
        "loss", restore_best_weights=True
    ),
}


@pytest.mark.parametrize("kind", CALLBACKS)
@pytest.mark.parametrize("wrap", [lambda c: c, lambda c: [c]], ids=["alone", "list"])
def test_callbacks_are_refused_before_the_first_step(model, tmp_path, kind, wrap):
    steps = model.trainer.position.global_step
    callback = CALLBACKS[kind](str(tmp_path / "a"))
    with pytest.raises(ValueError, match=rf"{kind.split()[0]}.*plsc_tf\.Checkpoint"):
        pixels = np.zeros((4, 8, 8, 3), np.uint8)
        model.fit(pixels, np.arange(4), callbacks=wrap(callback))
    assert model.trainer.position.global_step == steps
    assert not list(tmp_path.iterdir())


def test_other_callbacks_and_the_embedding_network_are_keras_s_own(model, tmp_path):
    data = np.zeros((4, 8, 8, 3), np.uint8), np.arange(4)
    stopping = keras.callbacks.EarlyStopping("loss")
    board = keras.callbacks.TensorBoard(str(tmp_path / "board"))
    model.fit(*data, epochs=2, verbose=0, callbacks=[stopping, board])
    path = str(tmp_path / "backbone.keras")
    model.backbone.save(path)
    found = keras.models.load_model(path).get_weights()
    np.testing.assert_equal(found, model.backbone.get_weights())
