"""Backbones: networks that turn an image into an embedding.

`build(name)` creates one of the library's networks, and `list()` returns their names.
`from_user` and `BaseModel` are for your own networks.

Every network maps normalized float images `[N, height, width, channels]` to float32
embeddings `[N, embedding_size]`. The caller normalizes the pixels.
"""

from plsc_tf.backbones.build import build, names as list, zoo_entry
from plsc_tf.backbones.user import BaseModel, from_user

__all__ = ["BaseModel", "build", "from_user", "list", "zoo_entry"]
