"""Prints the losses of 20 steps on so many replicas, as JSON; run by test_equality."""

import json
import sys

import keras

import plsc_tf

CLASSES = 11  # divides by none of 2, 3 and 4


class Losses(keras.callbacks.Callback):
    """Keeps the loss of every step."""

    def __init__(self):
        super().__init__()
        self.values = []

    def on_train_batch_end(self, batch, logs=None):
        self.values.append(self.model.step_result["loss"])


def losses(replicas, dtype, global_batch, synchronized):
    """Trains a small network through the whole pipeline; returns 20 losses."""
    keras.config.set_floatx(dtype)
    keras.config.set_dtype_policy(dtype)
    keras.utils.set_random_seed(1)
    norm = []
    if synchronized:
        norm = [keras.layers.BatchNormalization(synchronized=True)]
    with plsc_tf.strategy(replicas).scope():
        backbone = keras.Sequential(
            [
                keras.Input((16, 16, 3)),
                keras.layers.Conv2D(8, 3, strides=2),
                *norm,
                keras.layers.PReLU(shared_axes=[1, 2]),
                keras.layers.Flatten(),
                keras.layers.Dense(16),
            ]
        )
        head = plsc_tf.ShardedHead(CLASSES, scale=16.0, seed=2)
        model = plsc_tf.Classifier(backbone, head)
        model.compile(plsc_tf.Momentum(0.001))
    data = plsc_tf.load(
        "mock",
        batch_size=global_batch,
        image_size=(16, 16),
        num_classes=CLASSES,
        num_examples=77,
        seed=3,
    )
    kept = Losses()
    model.fit(data, epochs=9, stop_at_step=20, callbacks=[kept], verbose=0)
    return kept.values


if __name__ == "__main__":
    count = int(sys.argv[1])
    curves = {
        "float32": losses(count, "float32", 10, synchronized=False),
        "float64": losses(count, "float64", 10, synchronized=False),
        "synchronized": losses(count, "float32", 12, synchronized=True),
    }
    sys.stdout.write(json.dumps(curves) + "\n")
