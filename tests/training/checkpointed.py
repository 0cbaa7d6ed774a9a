"""The model, the data and the runs that the tests of checkpoints share."""

import keras
import numpy as np
import tensorflow as tf

import plsc_tf
from plsc_tf.training import state
from tests.networks import compiled, convolved


def network(units=7, size=6):
    norm = keras.layers.BatchNormalization()
    return convolved((8, 8, 3), size, norm, maps=units, dropout=0.2)


def build(replicas, classes=5, size=6, optimizer=None, units=7, **head):
    head = head.pop("kind", plsc_tf.ShardedHead)(classes, scale=8.0, **head)
    return compiled(lambda: network(units, size), head, replicas, optimizer)


def data():
    """Four global batches of ten."""
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3)).astype(np.uint8)
    return tf.data.Dataset.from_tensor_slices((images, np.arange(40) % 5)).batch(10)


def fit(model, *callbacks, epochs=2, **options):
    """A run of its own: four steps to an epoch."""
    model.trainer.position.global_step = 0
    options |= {"epochs": epochs, "callbacks": list(callbacks), "verbose": 0}
    return model.fit(data(), **options)


def resume(model, checkpoint, *callbacks, epochs):
    """Goes on with the run in the folder of a `Checkpoint`."""
    start = checkpoint.restore(model)
    callbacks = [*callbacks, checkpoint]
    model.fit(data(), epochs=epochs, verbose=0, callbacks=callbacks, **start)


def snapshot(model):
    """`{name: array}` of everything that a checkpoint holds, every replica's own."""
    arrays = {**model.head.arrays(), **model.trainer.updater.slots()}
    found = {name: rows.read(0, rows.shape[0]) for name, rows in arrays.items()}
    variables = [*model.backbone.variables, *model.optimizer.variables]
    for number, variable in enumerate(variables):
        local = model.strategy.experimental_local_results(variable.value)
        for i, copy in enumerate(local):
            found[f"{number} {variable.path} {i}"] = copy.numpy()
    return found


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def head_of(model, path):
    """The class weights of a checkpoint."""
    state.restore_weights(str(path), model)
    return model.head.weights_as_numpy()


class Watch(keras.callbacks.Callback):
    """Calls a function after each step, behind the callbacks before it."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def on_train_batch_end(self, batch, logs=None):
        self.function(self.model.trainer.position.global_step)
