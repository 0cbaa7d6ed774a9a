"""Arguments common to all networks: embedding size, image shape, dropout."""

import operator
from dataclasses import dataclass

from plsc_tf.requirements import require


@dataclass(frozen=True)
class NetworkArguments:
    """Arguments common to all networks.

    Args:
        name: the network's name.
        embedding_size: embedding size; None builds a zoo network without an embedding
            layer.
        image_shape: (height, width, channels) of the images, in pixels.
        dropout: dropout rate before the embedding layer, in [0, 1); None means the
            network's default.

    Raises:
        ValueError: `dropout` is out of range.
    """

    name: str
    embedding_size: int | None
    image_shape: tuple[int, int, int]
    dropout: float | None

    def __post_init__(self):
        rule = "dropout must be in [0, 1), or None for the network's default"
        require(0.0 <= (self.dropout or 0.0) < 1.0, rule, dropout=self.dropout)

    def dropout_or(self, default: float) -> float:
        """Returns the requested dropout rate, or the network's default."""
        return default if self.dropout is None else float(self.dropout)

    def require_pixels(self, least: int) -> None:
        """Checks that images are large enough for the last layers.

        Raises:
            ValueError: the height or width is less than `least` pixels.
        """
        shape = self.image_shape
        rule = f"{self.name!r} requires images of at least {least} x {least} pixels"
        advice = "Use larger images, or 'iresnet' with fewer stages (depths)"
        require(min(shape[:2]) >= least, rule, advice, image_shape=shape)


def positive_integer(value, name: str) -> int:
    """Returns `value` as an int.

    Raises:
        ValueError: it isn't a positive integer; the message contains `name`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    require(number >= 1, f"{name} must be a positive integer", **{name: repr(value)})
    return number


def checked_image_shape(image_shape) -> tuple[int, int, int]:
    """Returns `image_shape` as three positive ints: height, width, channels.

    Raises:
        ValueError: it has another form. For PLSC's (channels, height, width), the
            message gives the correct order.
    """
    try:
        shape = tuple(positive_integer(size, "image_shape") for size in image_shape)
    except (TypeError, ValueError):
        shape = ()
    rule = "image_shape must be three positive integers (height, width, channels)"
    require(len(shape) == 3, rule, image_shape=repr(image_shape))
    fits = shape[0] not in (1, 3) or shape[2] in (1, 3)
    rule = "image_shape must be (height, width, channels), unlike in PLSC"
    require(fits, rule, f"Set it to {(*shape[1:], shape[0])}", image_shape=shape)
    return shape
