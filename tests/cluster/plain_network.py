"""A network that trains alike on any number of replicas: no batch norm, no dropout."""

import keras


def network(image_shape, embedding_size):
    """Images of this shape to embeddings `[N, embedding_size]`."""
    return keras.Sequential(
        [
            keras.Input(image_shape),
            keras.layers.Conv2D(8, 3, strides=2),
            keras.layers.PReLU(shared_axes=[1, 2]),
            keras.layers.Flatten(),
            keras.layers.Dense(embedding_size),
        ]
    )
