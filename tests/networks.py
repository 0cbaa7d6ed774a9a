"""The small networks that tests train, a classifier of any network, and its scores."""

import keras
import numpy as np

import plsc_tf


def flat(image_shape, *layers):
    """Pixels in one row, and the layers behind them, such as a `Dense`."""
    return keras.Sequential([keras.Input(image_shape), keras.layers.Flatten(), *layers])


def convolved(image_shape, size, *layers, maps=8, dropout=0.0, seed=None):
    """A convolution, layers such as a batch norm behind it, and embeddings."""
    return keras.Sequential(
        [
            keras.Input(image_shape),
            keras.layers.Conv2D(maps, 3, strides=2),
            *layers,
            keras.layers.Flatten(),
            *([keras.layers.Dropout(dropout, seed=seed)] if dropout else []),
            keras.layers.Dense(size),
        ]
    )


def compiled(network, head, replicas=1, optimizer=None, **options):
    """A compiled classifier; `network` and `optimizer` make theirs in its scope."""
    keras.utils.set_random_seed(0)
    with plsc_tf.strategy(replicas).scope():
        model = plsc_tf.Classifier(network(), head)
        optimizer = optimizer() if optimizer else plsc_tf.Momentum(0.05)
        model.compile(optimizer, **options)
    return model


def scores(model, images):
    """By definition, float64 `[images, classes]`: cosines; plain softmax's logits."""
    return head_scores(model.head, model.embed(images).astype(np.float64))


def head_scores(head, rows):
    """The same, of embeddings."""
    weights = head.weights_as_numpy().astype(np.float64)
    if not head.loss.normalized:
        return rows @ weights.T + head.arrays()["bias"].read(0, len(weights))
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    weights /= np.linalg.norm(weights, axis=-1, keepdims=True)
    cosines = np.tensordot(rows, weights, [[1], [-1]])
    # Of several centers of a class, the nearest one counts.
    return cosines.max(axis=2) if cosines.ndim == 3 else cosines
