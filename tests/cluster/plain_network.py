"""A network that trains alike on any number of replicas: no batch norm, no dropout."""

import keras

from tests.networks import convolved


def network(image_shape, embedding_size):
    """Images of this shape to embeddings `[N, embedding_size]`."""
    activation = keras.layers.PReLU(shared_axes=[1, 2])
    return convolved(image_shape, embedding_size, activation)
