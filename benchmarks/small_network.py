"""A network that is traced in seconds, with all that a resume could get wrong."""

import keras
from keras import layers


def network(image_shape, embedding_size):
    """Convolution, batch norm and dropout, of some thousand weights.

    Args:
        image_shape: (height, width, channels) in pixels.
        embedding_size: numbers per embedding.
    """
    image = keras.Input(image_shape)
    x = layers.Conv2D(8, 3, strides=2, use_bias=False)(image)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Flatten()(layers.AveragePooling2D(2)(x))
    x = layers.Dropout(0.4)(x)
    x = layers.BatchNormalization()(layers.Dense(embedding_size)(x))
    return keras.Model(image, x, name="small")
