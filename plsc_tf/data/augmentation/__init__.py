"""Random changes to training images.

`Augmentation` specifies the possible changes; `decide` turns random numbers into
decisions for a whole block of images; `apply` applies an image's decisions to it.
"""

from plsc_tf.data.augmentation.decisions import NUM_CHANCES, apply, decide
from plsc_tf.data.augmentation.options import Augmentation

__all__ = ["NUM_CHANCES", "Augmentation", "apply", "decide"]
