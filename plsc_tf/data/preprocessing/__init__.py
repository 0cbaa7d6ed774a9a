"""Preprocessing by name: from a stored image to what a network is fed.

`build("face", image_size=(112, 112))` makes one; `names()` lists them.
"""

from plsc_tf.data.preprocessing.registry import (
    Preprocessing,
    build,
    names,
    own_augmentation,
)

__all__ = ["Preprocessing", "build", "names", "own_augmentation"]
