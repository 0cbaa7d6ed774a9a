"""The small networks that tests train, and a classifier of any network."""

import keras

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
