"""What may happen to a training image at random.

`Augmentation` says what; `decide` turns random numbers into decisions for a whole
block of images; `apply` carries out the decision on one of them.
"""

from plsc_tf.data.augmentation.decisions import (
    NUM_CHANCES,
    apply,
    decide,
    first_of,
)
from plsc_tf.data.augmentation.options import Augmentation

__all__ = ["NUM_CHANCES", "Augmentation", "apply", "decide", "first_of"]
