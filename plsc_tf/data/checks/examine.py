"""One picture: what it is, whether training can decode it, and its fingerprints."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import struct
import zlib

import numpy as np
import tensorflow as tf
from PIL import Image

from plsc_tf.data import images
from plsc_tf.data.checks import kinds
from plsc_tf.data.faults import reason

# Pillow's readers of other formats are not needed, and some start other programs.
_KNOWN = ("JPEG", "PNG", "GIF", "BMP", "PPM")
# MPO: a JPEG with further pictures behind it, as some cameras write them.
_DECODED = ("JPEG", "MPO", "PNG", "GIF")
_OTHER_STARTS = {
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"RIFF": "WebP",
    b"\0\0\0\x0cjP": "JPEG 2000",
    b"\xff\x0a": "JPEG XL",
    b"\0\0\0 ftyp": "AVIF or HEIC",
    b"\0\0\0\x1cftyp": "AVIF or HEIC",
    b"\0\0\0\x18ftyp": "AVIF or HEIC",
}
_DAMAGED_STARTS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"GIF8": "GIF"}
_GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "F")
_ALPHA_MODES = ("LA", "PA", "RGBA", "La", "RGBa")
_ORIENTATION = 0x0112
_PNG_DEPTH = 24
# What Pillow raises on damaged files, besides UnidentifiedImageError.
_FAULTS = (
    OSError,
    ValueError,
    SyntaxError,
    EOFError,
    LookupError,
    ArithmeticError,
    TypeError,
    AttributeError,
    NotImplementedError,
    MemoryError,
    struct.error,
    zlib.error,
)


@dataclasses.dataclass(slots=True)
class Examined:
    """What was found about a picture.

    Attributes:
        bytes: its size.
        height: in pixels; 0 when it is not known.
        width: in pixels.
        byte_hash: of its file, 64 bits; of its pixels for arrays.
        pixel_hash: of its decoded pixels, 64 bits; 0 when they cannot be decoded.
        near_hash: a difference hash, 64 bits; 0 when it was not asked for.
        faults: (kind, detail) of each.
    """

    bytes: int = 0
    height: int = 0
    width: int = 0
    byte_hash: int = 0
    pixel_hash: int = 0
    near_hash: int = 0
    faults: list = dataclasses.field(default_factory=list)

    def add(self, kind: kinds.Kind, detail: str = "") -> None:
        """Adds a fault."""
        self.faults.append((kind, detail))


def examine(content: bytes | np.ndarray, near: bool = False) -> Examined:
    """Examines a picture; nothing it contains makes this fail.

    Pixels are decoded exactly as in training, by `images.decode`.

    Args:
        content: an encoded picture, or uint8 [h, w] or [h, w, channels].
        near: whether to compute the difference hash.
    """
    if isinstance(content, np.ndarray):
        found = Examined(bytes=content.nbytes)
        pixels = _rgb(content)
    else:
        found = Examined(bytes=len(content))
        pixels = _decoded(content, found)
    if pixels is None:
        return found
    found.height, found.width = pixels.shape[:2]
    found.pixel_hash = hash64(pixels, repr(pixels.shape).encode())
    found.byte_hash = found.byte_hash or found.pixel_hash
    if pixels.size and pixels.min() == pixels.max():
        found.add(kinds.BLANK)
    elif near:
        found.near_hash = difference_hash(pixels)
    return found


def hash64(data, key: bytes = b"") -> int:
    """Returns 64 bits of BLAKE2b; never 0, which stands for nothing."""
    digest = hashlib.blake2b(key, digest_size=8)
    digest.update(data)
    return int.from_bytes(digest.digest(), "little") or 1


def difference_hash(pixels: np.ndarray) -> int:
    """Returns 64 bits: whether brightness rises from left to right, on a 9 x 8 grid.

    Scaling, compression and slight changes of colour leave most bits as they are
    (Krawetz, "Kind of like that", 2013).
    """
    small = Image.fromarray(pixels).convert("L").resize((9, 8), Image.Resampling.BOX)
    grid = np.asarray(small, np.int16)
    bits = np.packbits(grid[:, 1:] > grid[:, :-1])
    return int.from_bytes(bits.tobytes(), "little")


def _rgb(pixels: np.ndarray) -> np.ndarray:
    """What `images.to_rgb` makes of uint8 pixels, without TensorFlow's overhead."""
    if pixels.ndim == 2:
        pixels = pixels[..., np.newaxis]
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def _decoded(data: bytes, found: Examined) -> np.ndarray | None:
    """Returns the pixels that training would see, or None and adds why not."""
    if not data:
        found.add(kinds.EMPTY)
        return None
    found.byte_hash = hash64(data)
    name = _look_at(data, found)
    if name is None:
        return None
    try:
        return images.decode(data).numpy()
    except tf.errors.OpError as error:
        kind = kinds.DAMAGED if name in _DECODED else kinds.UNSUPPORTED
        found.add(kind, f"{name}: {reason(error)}")
        return None


def _look_at(data: bytes, found: Examined) -> str | None:
    """Reads the headers; returns the format, or None for what not to decode."""
    try:
        image = Image.open(io.BytesIO(data), formats=_KNOWN)
    except Image.DecompressionBombError as error:
        found.add(kinds.TOO_LARGE, str(error))
        return None
    except Image.UnidentifiedImageError:
        _note_unidentified(data, found)
        return None
    except _FAULTS as error:
        found.add(kinds.DAMAGED, f"{type(error).__name__}: {error}"[:200])
        return None
    found.width, found.height = image.size
    if image.width * image.height > (Image.MAX_IMAGE_PIXELS or 2**63):
        found.add(kinds.TOO_LARGE, f"{image.width} x {image.height} pixels")
        return None
    try:
        return _note_kind(image, data, found)
    except _FAULTS as error:
        found.add(kinds.DAMAGED, f"{type(error).__name__}: {error}"[:200])
        return None


def _note_unidentified(data: bytes, found: Examined) -> None:
    """Notes what Pillow does not know: a damaged picture, or none at all."""
    for start, name in _DAMAGED_STARTS.items():
        if data.startswith(start):
            found.add(kinds.DAMAGED, f"a {name} whose header cannot be read")
            return
    for start, name in _OTHER_STARTS.items():
        if data.startswith(start):
            found.add(kinds.UNSUPPORTED, name)
            return
    found.add(kinds.NOT_AN_IMAGE, f"starts with {data[:8]!r}")


def _note_kind(image: Image.Image, data: bytes, found: Examined) -> str:
    """Notes what is unusual about a picture; returns the name of its format."""
    if image.mode == "CMYK":
        found.add(kinds.CMYK)
    if image.mode in _GREY_MODES:
        found.add(kinds.GREY)
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        found.add(kinds.ALPHA)
    if image.format == "PNG" and data[_PNG_DEPTH : _PNG_DEPTH + 1] == b"\x10":
        found.add(kinds.SIXTEEN_BIT)
    if "exif" in image.info:
        orientation = _orientation(image)
        if orientation in range(2, 9):
            found.add(kinds.ROTATED, f"orientation {orientation}")
    if image.format != "MPO" and getattr(image, "is_animated", False):
        found.add(kinds.ANIMATED)
        if image.format == "GIF":
            # Whether training decodes it is asked, but it is not damaged if not.
            return "animated GIF"
    return image.format


def _orientation(image: Image.Image) -> int:
    """The orientation in EXIF; 1, as it is, when its EXIF cannot be read."""
    try:
        return image.getexif().get(_ORIENTATION, 1)
    except _FAULTS:
        return 1
