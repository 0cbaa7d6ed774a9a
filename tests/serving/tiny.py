"""Small networks, images and a card that the tests of exports share."""

import importlib.util
import json
import pathlib

import keras
import numpy as np

import plsc_tf
from plsc_tf.data import figures
from plsc_tf.heads.heads import DenseHead

SIZE = (24, 20)
EMBEDDING = 16
FORMATS = ["saved_model", "tflite", "tflite_float16", "tflite_int8"]
if importlib.util.find_spec("tf2onnx") is not None:
    FORMATS.append("onnx")


def network(seed=0):
    """Convolution, batch normalisation, PReLU and a dense layer, weights of chance."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input((*SIZE, 3))
    x = keras.layers.Rescaling(1 / 128, offset=-127.5 / 128)(inputs)
    x = keras.layers.Conv2D(8, 3, strides=2, use_bias=False)(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.PReLU(shared_axes=[1, 2])(x)
    x = keras.layers.Dense(EMBEDDING)(keras.layers.Flatten()(x))
    model = keras.Model(inputs, x)
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(weight + rng.uniform(0.0, 0.2, weight.shape))
    return model


def classifier(margins, sharded=True, num_classes=11, **options):
    """A model on two replicas, its class weights and biases of chance."""
    with plsc_tf.strategy(num_replicas=2).scope():
        kind = plsc_tf.ShardedHead if sharded else DenseHead
        head = kind(num_classes, loss=margins, **options)
        model = plsc_tf.Classifier(network(), head)
    rng = np.random.default_rng(1)
    weights = 0.03 * rng.normal(size=head.arrays()["weight"].shape)
    head.set_weights_from_numpy(weights.astype(np.float32))
    if "bias" in head.arrays():
        head.arrays()["bias"].write(0, rng.normal(size=num_classes).astype(np.float32))
    return model


def images(count, seed=0):
    """Images of drawn people: uint8 [count, height, width, 3]."""
    return np.stack([figures.draw(0, k, seed, SIZE) for k in range(count)])


def cosines(rows, expected):
    """Cosines of embeddings, row by row."""
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(expected, axis=1)
    return np.sum(rows * expected, axis=1) / lengths


def read(folder, name):
    """A JSON file of an export."""
    return json.loads(pathlib.Path(folder, "assets.extra", name).read_text())


IMAGES = images(6)
# An evaluation card: a set whose data cannot support the FAR, one with a threshold.
SMALL = {"far": 1e-3, "squared_l2": None, "cosine": None, "note": "few"}
LARGE = {"far": 1e-3, "squared_l2": 1.2, "cosine": 0.4}
CARD = {
    "version": 1,
    "model": {"weights_sha256": "a" * 64},
    "sets": {
        "small": {"threshold": SMALL},
        "large": {"threshold": {**LARGE, "tar": 0.9}},
        "classes": {"threshold": {}},
    },
}
