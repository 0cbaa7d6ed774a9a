"""What the pictures of a request may be, looked at before anything is decoded."""

import dataclasses

from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.serving.server.picture_size import num_pixels

_MEGA = 1_000_000


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a request.

    Attributes:
        images: most pictures.
        body_bytes: most bytes of its body.
        image_bytes: most bytes of an encoded picture.
        pixels: most pixels of a picture.
    """

    images: int
    body_bytes: int
    image_bytes: int
    pixels: int

    @classmethod
    def of(cls, options):
        """The limits that the option group `server` asks for."""
        return cls(
            images=options.max_request_images,
            body_bytes=int(options.max_body_mb * _MEGA),
            image_bytes=int(options.max_image_mb * _MEGA),
            pixels=int(options.max_megapixels * _MEGA),
        )

    def check_count(self, count):
        """Raises RequestError when a request has no picture, or too many."""
        if not count:
            raise invalid("The request has no picture.")
        if count > self.images:
            raise RequestError(
                "TOO_LARGE",
                f"A request may have {self.images} pictures. Received: {count}.",
            )

    def check_picture(self, index, data):
        """Returns the pixels of an encoded picture.

        Args:
            index: its place in the request, for the error.
            data: its bytes.

        Raises:
            RequestError: it is no picture, or too large.
        """
        if len(data) > self.image_bytes:
            raise RequestError(
                "TOO_LARGE",
                f"Picture {index} has {len(data)} bytes; {self.image_bytes} are "
                "allowed.",
            )
        pixels = num_pixels(data)
        if pixels is None:
            raise invalid(f"Picture {index} is not a JPEG, PNG or GIF.")
        if pixels > self.pixels:
            raise RequestError(
                "TOO_LARGE",
                f"Picture {index} has {pixels} pixels; {self.pixels} are allowed.",
            )
        return pixels
