"""Reads, decodes and hashes all images of a data set in one pass, with threads.

The resulting table takes 33 bytes per image, so that millions fit in memory.
"""

import collections
import concurrent.futures
import hashlib
import io
import itertools
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf
from PIL import Image

from plsc_tf.data import faults, images
from plsc_tf.data.checks.findings import KINDS, Findings
from plsc_tf.data.checks.listings import Item, Listing
from plsc_tf.data.image_limit import MAX_MEGAPIXELS, check_size, num_pixels, read_image
from plsc_tf.progress import Progress

# Marks a label that cannot be read.
NO_LABEL = -(2**63)
_HASHES = ("byte_hash", "pixel_hash", "near_hash")
# A row of the table; `removed` is whether a cleaned list omits the image.
ROW = np.dtype([("label", "i8"), ("removed", "?"), *((name, "u8") for name in _HASHES)])
# Formats to open with Pillow. Its readers for other formats are not needed: some of
# them start other programs, and that of TIFF makes 80 bytes of each zero byte.
_KNOWN = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "JPEG2000")
# Formats that training decodes. MPO is a JPEG followed by more images, which some
# cameras write.
_DECODED = ("JPEG", "MPO", "PNG", "GIF")
_DAMAGED_STARTS = {b"\xff\xd8\xff": "JPEG", b"\x89PNG": "PNG", b"GIF8": "GIF"}
_GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "F")
_ALPHA_MODES = ("LA", "PA", "RGBA", "La", "RGBa")
# The byte of a PNG file that contains the number of bits per channel.
_PNG_DEPTH = slice(24, 25)
# Images per task, and tasks per thread to submit ahead.
_AT_ONCE, _AHEAD = 32, 3


def survey(
    listing: Listing, findings: Findings, look: Callable[[Item], Item]
) -> np.ndarray:
    """Examines every image of a listing, and shows the progress.

    Args:
        listing: the images.
        findings: findings to add faults to.
        look: `examine` with its options.

    Returns:
        The table, with one `ROW` per item of the listing.
    """
    tables, count, threads = [np.empty(0, ROW)], 0, os.cpu_count() or 1
    items = listing.items(findings)
    # The listing knows its total when it has yielded an item.
    items = itertools.chain(list(itertools.islice(items, 1)), items)
    progress = Progress("checking", listing.total, listing.unit)
    with progress, concurrent.futures.ThreadPoolExecutor(threads) as pool:
        try:
            for chunk in _examined(items, look, pool, _AHEAD * threads):
                for item in chunk:
                    limit = listing.num_classes or 2**63
                    if item.label is not None and not 0 <= item.label < limit:
                        item.add("label_out_of_range", f"label {item.label}")
                    for kind, detail in item.faults:
                        findings.add(kind, listing.describe(count), detail)
                    count += 1
                tables.append(np.array(list(map(_row, chunk)), ROW))
                progress.add(sum(item.units for item in chunk))
        finally:
            pool.shutdown(cancel_futures=True)
    return np.concatenate(tables)


def _examined(items, look, pool, ahead):
    """Yields lists of examined items, in order."""
    waiting = collections.deque()
    while chunk := list(itertools.islice(items, _AT_ONCE)):
        waiting.append(pool.submit(list, map(look, chunk)))
        if len(waiting) >= ahead:
            yield waiting.popleft().result()
    for future in waiting:
        yield future.result()


def _row(item):
    label, removed = item.label, any(KINDS[kind].removed for kind, _ in item.faults)
    label = NO_LABEL if label is None else max(min(label, 2**63 - 1), NO_LABEL)
    return label, removed, item.byte_hash, item.pixel_hash, item.near_hash


class _Fault(Exception):
    """A fault that leaves nothing to examine; see `Item.add`."""


def examine(item: Item, near=False, max_megapixels=MAX_MEGAPIXELS, judge=None) -> Item:
    """Examines an item and returns it without its content; never fails.

    Args:
        item: the item, which gets its hashes or a fault.
        near: whether to compute the difference hash.
        max_megapixels: largest image to decode, in megapixels.
        judge: function of an image's pixels that says how bad they are, or "" if they
            are good enough; None accepts all.
    """
    if item.path is None and item.content is None:
        return item
    try:
        pixels = _pixels(item, max_megapixels * 1e6)
        item.pixel_hash = hash64(pixels, repr(pixels.shape).encode())
        item.byte_hash = item.byte_hash or item.pixel_hash
        if pixels.size and pixels.min() == pixels.max():
            item.add("blank")
        elif near:
            item.near_hash = difference_hash(pixels)
        if judge and (problem := judge(pixels)):
            item.add("low_quality", problem)
    except _Fault as fault:
        item.add(*fault.args)
    item.content = None
    return item


def hash64(data, key: bytes = b"") -> int:
    """Returns a 64-bit BLAKE2b hash; never 0, which means "no hash"."""
    digest = hashlib.blake2b(key, digest_size=8)
    digest.update(data)
    return int.from_bytes(digest.digest(), "little") or 1


def difference_hash(pixels: np.ndarray) -> int:
    """Computes a hash that is similar for similar images.

    Each of its 64 bits is whether brightness increases from left to right between two
    cells of a 9 x 8 grid. Scaling, compression and slight color changes leave most bits
    unchanged (Krawetz, "Kind of like that", 2013).
    """
    small = Image.fromarray(pixels).convert("L").resize((9, 8), Image.Resampling.BOX)
    grid = np.asarray(small, np.int16)
    return int.from_bytes(np.packbits(grid[:, 1:] > grid[:, :-1]).tobytes(), "little")


def _pixels(item: Item, most: float) -> np.ndarray:
    """Returns the pixels exactly as in training; raises a `_Fault` if that fails."""
    data = item.content
    if isinstance(data, np.ndarray):
        return images.to_rgb(data).numpy()
    try:
        data = data if item.path is None else read_image(os.fsdecode(item.path))
    except FileNotFoundError:
        raise _Fault("missing_file") from None
    except (OSError, ValueError) as error:
        raise _Fault("unreadable", str(error).split("\n")[0][:200]) from error
    if not data:
        raise _Fault("empty")
    item.byte_hash, size = hash64(data), num_pixels(data, most)
    if size is not None and size > most:
        raise _Fault("too_large", f"{size / 1e6:.2f} megapixels")
    try:
        name = _format(data, item)
    except Image.UnidentifiedImageError:
        raise _Fault(*_unidentified(data)) from None
    except Exception as error:  # noqa: BLE001 - Pillow raises all kinds on damage
        text = f"{type(error).__name__}: {error}"[:200]
        raise _Fault("damaged_image", text) from error
    try:
        if size is None:
            check_size(data, most / 1e6)  # raises the reason
        return images.decode(data).numpy()
    except (ValueError, tf.errors.OpError) as error:
        kind = "damaged_image" if name in _DECODED else "unsupported_format"
        raise _Fault(kind, f"{name}: {faults.reason(error)}") from error


def _unidentified(data: bytes) -> tuple[str, str]:
    """Returns kind and detail of the fault of a file that Pillow cannot identify."""
    for start, name in _DAMAGED_STARTS.items():
        if data.startswith(start):
            return "damaged_image", f"a {name} whose header cannot be read"
    if data[4:8] == b"ftyp" or data[:4] in (b"II*\0", b"MM\0*"):
        return "unsupported_format", "HEIC, AVIF or TIFF"
    return "not_an_image", f"starts with {data[:8]!r}"


def _format(data: bytes, item: Item) -> str:
    """Reads an image's headers, adds unusual properties and returns the format."""
    # Pillow keeps each segment of a JPEG, and reads a comment of any length.
    start = data if data.startswith(b"GIF") else data[: 1 << 20]
    image = Image.open(io.BytesIO(start), formats=_KNOWN)
    if image.format not in _DECODED:
        return image.format
    animated = image.format != "MPO" and getattr(image, "is_animated", False)
    properties = {
        "cmyk": image.mode == "CMYK",
        "grey": image.mode in _GREY_MODES,
        "alpha": image.mode in _ALPHA_MODES or "transparency" in image.info,
        "sixteen_bit": image.format == "PNG" and data[_PNG_DEPTH] == b"\x10",
        "animated": animated,
    }
    for kind, present in properties.items():
        if present:
            item.add(kind)
    orientation = images.orientation(data) if "exif" in image.info else 1
    if orientation in range(2, 9):
        item.add("rotated", f"orientation {orientation}")
    # Training may fail to decode an animated GIF, but that does not mean it is damaged.
    return "animated GIF" if animated and image.format == "GIF" else image.format
