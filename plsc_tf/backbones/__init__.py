"""Backbones: networks that turn an image into an embedding.

`build(name)` makes a network of the library by name and `list()` names them all;
`from_user` and `BaseModel` take a network of your own.

Every network maps normalised float images [N, height, width, channels] to float32
embeddings [N, embedding_size]; the normalisation of pixels belongs to the caller.
"""

from plsc_tf.backbones.build import build, default_image_size, zoo_entry
from plsc_tf.backbones.build import names as list
from plsc_tf.backbones.user import BaseModel, from_user

__all__ = [
    "BaseModel",
    "build",
    "default_image_size",
    "from_user",
    "list",
    "zoo_entry",
]
