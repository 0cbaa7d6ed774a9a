"""Gallery: known faces, kept on disk, and the search among them."""

from plsc_tf.serving.gallery.gallery import Gallery, Match

__all__ = ["Gallery", "Match"]
