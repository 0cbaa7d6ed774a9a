"""One pass over all images: read, decoded and fingerprinted in threads.

The table that it makes has 49 bytes per image, so that millions fit.
"""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import itertools
import os
from collections.abc import Callable

import numpy as np

from plsc_tf.data.checks import kinds
from plsc_tf.data.checks.examine import Examined, examine
from plsc_tf.data.checks.findings import Findings
from plsc_tf.data.checks.listing import Item, Listing
from plsc_tf.storage import files

# Stands for a label that cannot be read.
NO_LABEL = -(2**63)
# `removed`: whether a cleaned list leaves the image out.
ROW = np.dtype(
    [
        ("label", "<i8"),
        ("removed", "?"),
        ("byte_hash", "<u8"),
        ("pixel_hash", "<u8"),
        ("near_hash", "<u8"),
        ("height", "<u4"),
        ("width", "<u4"),
        ("bytes", "<u8"),
    ]
)
# Images of one task, and tasks per thread that are read ahead.
_AT_ONCE, _AHEAD = 32, 3


def survey(
    listing: Listing,
    findings: Findings,
    *,
    num_classes: int | None = None,
    labels_offset: int = 0,
    near: bool = False,
    threads: int = 0,
    on_progress: Callable[[int, float], None] = lambda count, share: None,
) -> np.ndarray:
    """Examines every image of a listing.

    Args:
        listing: the images.
        findings: gets their faults.
        num_classes: labels must be below it; None: that of the listing, if any.
        labels_offset: subtracted from each label.
        near: whether to compute difference hashes.
        threads: that read and decode; 0: one per core.
        on_progress: called with images done and the share of the whole.

    Returns:
        one `ROW` per item of the listing.
    """
    table, count = bytearray(), 0
    threads = threads or os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        try:
            chunks = _examined(listing.items(findings), near, pool, _AHEAD * threads)
            for items, results in chunks:
                limit = num_classes or listing.num_classes or 2**63
                for item, result in zip(items, results, strict=True):
                    label = None if item.label is None else item.label - labels_offset
                    if label is not None and not 0 <= label < limit:
                        result.add(kinds.LABEL_OUT_OF_RANGE, f"label {label}")
                    for kind, detail in result.faults:
                        place = functools.partial(listing.describe, count)
                        findings.add(kind, place, detail)
                    table += _row(label, result)
                    count += 1
                on_progress(count, items[-1].share)
        finally:
            pool.shutdown(cancel_futures=True)
    return np.frombuffer(table, ROW)


def _examined(items, near, pool, ahead):
    """Yields (items, their `Examined`), in order."""
    waiting = collections.deque()
    while chunk := list(itertools.islice(items, _AT_ONCE)):
        waiting.append((chunk, pool.submit(_examine_all, chunk, near)))
        if len(waiting) >= ahead:
            done, future = waiting.popleft()
            yield done, future.result()
    for done, future in waiting:
        yield done, future.result()


def _row(label, result):
    label = NO_LABEL if label is None else max(min(label, 2**63 - 1), NO_LABEL)
    removed = any(kind.removed for kind, _ in result.faults)
    hashes = result.byte_hash, result.pixel_hash, result.near_hash
    sizes = result.height, result.width, result.bytes
    return np.array((label, removed, *hashes, *sizes), ROW).tobytes()


def _examine_all(items: list[Item], near: bool) -> list[Examined]:
    return [_examine(item, near) for item in items]


def _examine(item: Item, near: bool) -> Examined:
    """Reads and examines an image; any problem becomes a fault."""
    result = Examined()
    if item.fault is not None:
        result.add(item.fault, item.detail)
        return result
    content, item.content = item.content, None
    if content is None:
        try:
            content = files.read(os.fsdecode(item.path))
        except FileNotFoundError:
            result.add(kinds.MISSING_FILE)
            return result
        except OSError as error:
            result.add(kinds.UNREADABLE, str(error).split("\n")[0][:200])
            return result
    return examine(content, near)
