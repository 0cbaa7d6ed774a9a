"""What every network is asked for: embedding size, image shape, dropout."""

import operator
from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkArguments:
    """The arguments that all networks share, checked.

    Args:
        embedding_size: numbers per embedding; None leaves a network of the zoo without
            an embedding layer.
        image_shape: (height, width, channels) of the images, in pixels.
        dropout: share of the features that is dropped before the embedding layer,
            in [0, 1); None means the network's own default.
        synchronized_batch_norm: whether batch normalisation uses the statistics of
            the global batch instead of each replica's own.

    Raises:
        ValueError: where an argument is out of its range.
    """

    embedding_size: int | None = 512
    image_shape: tuple[int, int, int] = (112, 112, 3)
    dropout: float | None = None
    synchronized_batch_norm: bool = False

    def __post_init__(self):
        # The dataclass is frozen, so the cleaned values are set past its guard.
        if self.embedding_size is not None:
            size = positive_integer(self.embedding_size, "embedding_size")
            object.__setattr__(self, "embedding_size", size)
        object.__setattr__(self, "image_shape", checked_image_shape(self.image_shape))
        if self.dropout is not None and not 0.0 <= self.dropout < 1.0:
            raise ValueError(
                "dropout must lie in [0, 1): it is the share of features that is "
                "dropped, and None means the network's own default. "
                f"Received: dropout={self.dropout}"
            )

    def dropout_or(self, default: float) -> float:
        """The asked dropout, or the network's own default."""
        return default if self.dropout is None else float(self.dropout)

    def require_pixels(self, total_stride: int, name: str) -> None:
        """Refuses images on which the strided convolutions would run out of pixels.

        Args:
            total_stride: product of all strides of the network.
            name: the network's name, for the message.

        Raises:
            ValueError: where an image has fewer pixels in a row than `total_stride`.
        """
        if min(self.image_shape[:2]) < total_stride:
            raise ValueError(
                f"'{name}' halves the image until 1 pixel of {total_stride} is left, "
                f"so that image_shape needs at least {total_stride} pixels in height "
                f"and width. Received: image_shape={self.image_shape}. Use larger "
                "images, or 'iresnet' with fewer stages (depths) or stem_stride=1."
            )


def positive_integer(value, name: str) -> int:
    """`value` as an int, refused with the argument's `name` unless it is positive."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a positive integer. Received: {name}={value}")
    return number


def checked_image_shape(image_shape) -> tuple[int, int, int]:
    """`image_shape` as three positive ints: height, width, channels.

    Raises:
        ValueError: where it has another form; PLSC's (channels, height, width) is
            recognised and the message says how to write it here.
    """
    try:
        shape = tuple(positive_integer(size, "image_shape") for size in image_shape)
    except (TypeError, ValueError):
        shape = ()
    if len(shape) != 3:
        raise ValueError(
            "image_shape must be three positive integers (height, width, channels). "
            f"Received: image_shape={image_shape}"
        )
    if shape[0] in (1, 3) and shape[2] not in (1, 3):
        raise ValueError(
            "image_shape is (height, width, channels) here, unlike PLSC's "
            f"(channels, height, width). Received: image_shape={shape}. "
            f"Write {(*shape[1:], shape[0])} instead."
        )
    return shape
