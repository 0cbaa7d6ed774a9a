"""Where PLSC's scripts import `BaseModel` from."""

from plsc_tf.backbones.user import BaseModel

__all__ = ["BaseModel"]
