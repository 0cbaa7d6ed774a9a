"""The smallest network that tests train, where nothing else of it matters."""

import keras


def flat(image_shape, *layers):
    """Pixels in one row, and the layers behind them, such as a `Dense`."""
    return keras.Sequential([keras.Input(image_shape), keras.layers.Flatten(), *layers])
