"""One image: its format, whether training can decode it, and its fingerprints."""

from __future__ import annotations

import dataclasses
import hashlib
import io

import numpy as np
import tensorflow as tf
from PIL import Image

from plsc_tf.data import images
from plsc_tf.data.checks import kinds
from plsc_tf.data.faults import reason

# Pillow's readers of other formats are not needed, and some start other programs.
_KNOWN = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP", "JPEG2000")
# MPO: a JPEG with further images behind it, as some cameras write them.
_DECODED = ("JPEG", "MPO", "PNG", "GIF")
_DAMAGED_STARTS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"GIF8": "GIF"}
_GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "F")
_ALPHA_MODES = ("LA", "PA", "RGBA", "La", "RGBa")
_ORIENTATION = 0x0112
_PNG_DEPTH = 24


@dataclasses.dataclass(slots=True)
class Examined:
    """The facts about an image.

    Attributes:
        bytes: its size.
        height: in pixels; 0 if unknown.
        width: in pixels.
        byte_hash: of its file, 64 bits; of its pixels for arrays.
        pixel_hash: of its decoded pixels, 64 bits; 0 if they cannot be decoded.
        near_hash: a difference hash, 64 bits; 0 if it was not requested.
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
    """Examines an image; never fails, whatever it contains.

    Pixels are decoded exactly as in training, by `images.decode`.

    Args:
        content: an encoded image, or uint8 [h, w] or [h, w, channels].
        near: whether to compute the difference hash.
    """
    if isinstance(content, np.ndarray):
        result = Examined(bytes=content.nbytes)
        pixels = _rgb(content)
    else:
        result = Examined(bytes=len(content))
        pixels = _decoded(content, result)
    if pixels is None:
        return result
    result.height, result.width = pixels.shape[:2]
    result.pixel_hash = hash64(pixels, repr(pixels.shape).encode())
    result.byte_hash = result.byte_hash or result.pixel_hash
    if pixels.size and pixels.min() == pixels.max():
        result.add(kinds.BLANK)
    elif near:
        result.near_hash = difference_hash(pixels)
    return result


def hash64(data, key: bytes = b"") -> int:
    """Returns 64 bits of BLAKE2b; never 0, which stands for nothing."""
    digest = hashlib.blake2b(key, digest_size=8)
    digest.update(data)
    return int.from_bytes(digest.digest(), "little") or 1


def difference_hash(pixels: np.ndarray) -> int:
    """Returns 64 bits: whether brightness rises from left to right, on a 9 x 8 grid.

    Scaling, compression and slight changes of color leave most bits unchanged
    (Krawetz, "Kind of like that", 2013).
    """
    small = Image.fromarray(pixels).convert("L").resize((9, 8), Image.Resampling.BOX)
    grid = np.asarray(small, np.int16)
    bits = np.packbits(grid[:, 1:] > grid[:, :-1])
    return int.from_bytes(bits.tobytes(), "little")


def _rgb(pixels: np.ndarray) -> np.ndarray:
    """Converts uint8 pixels as `images.to_rgb`, without TensorFlow's overhead."""
    if pixels.ndim == 2:
        pixels = pixels[..., np.newaxis]
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def _decoded(data: bytes, result: Examined) -> np.ndarray | None:
    """Returns the pixels as in training, or None and adds the fault."""
    if not data:
        result.add(kinds.EMPTY)
        return None
    result.byte_hash = hash64(data)
    try:
        name = _format(data, result)
    except Image.DecompressionBombError as error:
        result.add(kinds.TOO_LARGE, str(error))
        return None
    except Image.UnidentifiedImageError:
        _add_unidentified(data, result)
        return None
    except Exception as error:  # noqa: BLE001 - Pillow raises all kinds on damage
        result.add(kinds.DAMAGED, f"{type(error).__name__}: {error}"[:200])
        return None
    if result.width * result.height > (Image.MAX_IMAGE_PIXELS or 2**63):
        result.add(kinds.TOO_LARGE, f"{result.width} x {result.height} pixels")
        return None
    try:
        return images.decode(data).numpy()
    except tf.errors.OpError as error:
        kind = kinds.DAMAGED if name in _DECODED else kinds.UNSUPPORTED
        result.add(kind, f"{name}: {reason(error)}")
        return None


def _add_unidentified(data: bytes, result: Examined) -> None:
    """Adds the fault of a file that Pillow does not know."""
    for start, name in _DAMAGED_STARTS.items():
        if data.startswith(start):
            result.add(kinds.DAMAGED, f"a {name} whose header cannot be read")
            return
    if data[4:8] == b"ftyp":
        result.add(kinds.UNSUPPORTED, "HEIC or AVIF")
        return
    result.add(kinds.NOT_AN_IMAGE, f"starts with {data[:8]!r}")


def _format(data: bytes, result: Examined) -> str:
    """Reads the headers; returns the format and adds unusual properties."""
    image = Image.open(io.BytesIO(data), formats=_KNOWN)
    result.width, result.height = image.size
    if image.format not in _DECODED:
        return image.format
    if image.mode == "CMYK":
        result.add(kinds.CMYK)
    if image.mode in _GREY_MODES:
        result.add(kinds.GREY)
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        result.add(kinds.ALPHA)
    if image.format == "PNG" and data[_PNG_DEPTH : _PNG_DEPTH + 1] == b"\x10":
        result.add(kinds.SIXTEEN_BIT)
    if "exif" in image.info:
        orientation = _orientation(image)
        if orientation in range(2, 9):
            result.add(kinds.ROTATED, f"orientation {orientation}")
    if image.format != "MPO" and getattr(image, "is_animated", False):
        result.add(kinds.ANIMATED)
        if image.format == "GIF":
            # Training may not decode it, but it is not damaged.
            return "animated GIF"
    return image.format


def _orientation(image: Image.Image) -> int:
    """Returns the orientation in EXIF; 1, the usual one, if it cannot be read."""
    try:
        return image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001 - Pillow raises all kinds on damage
        return 1
