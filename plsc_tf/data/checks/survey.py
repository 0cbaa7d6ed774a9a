"""One pass over all pictures: read, decoded and fingerprinted in threads.

What is kept of a picture is 50 bytes in packed arrays, so that millions fit.
"""

from __future__ import annotations

import array
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
# Pictures of one task, and tasks per thread that are read ahead.
_AT_ONCE, _AHEAD = 32, 3


class Table:
    """What is known of each picture, one row per item of the listing."""

    _COLUMNS = {
        "labels": "q",
        "flags": "Q",
        "byte_hashes": "Q",
        "pixel_hashes": "Q",
        "near_hashes": "Q",
        "heights": "I",
        "widths": "I",
        "bytes": "Q",
    }

    def __init__(self):
        self._columns = {name: array.array(c) for name, c in self._COLUMNS.items()}

    def append(self, label: int | None, flags: int, found: Examined) -> None:
        """Adds a row."""
        row = (
            NO_LABEL if label is None else max(min(label, 2**63 - 1), NO_LABEL),
            flags,
            found.byte_hash,
            found.pixel_hash,
            found.near_hash,
            found.height,
            found.width,
            found.bytes,
        )
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)

    def __len__(self) -> int:
        return len(self._columns["labels"])

    def __getattr__(self, name: str) -> np.ndarray:
        """A column as an array that shares its memory."""
        if name not in self._COLUMNS:
            raise AttributeError(name)
        column = self._columns[name]
        if not column:
            return np.zeros(0, column.typecode)
        return np.frombuffer(column, column.typecode)


def survey(
    listing: Listing,
    findings: Findings,
    *,
    num_classes: int | None = None,
    labels_offset: int = 0,
    near: bool = False,
    threads: int = 0,
    on_progress: Callable[[int, float], None] = lambda count, fraction: None,
) -> Table:
    """Examines every picture of a listing.

    Args:
        listing: the pictures.
        findings: gets what is wrong with them.
        num_classes: labels must be below it; None: what the listing says, if it does.
        labels_offset: subtracted from each label.
        near: whether to compute difference hashes.
        threads: that read and decode; 0: one per core.
        on_progress: called with pictures done and the share of the whole.
    """
    table, threads = Table(), threads or os.cpu_count() or 1

    def take(items: list[Item], results: list[Examined], fraction: float) -> None:
        limit = num_classes or listing.num_classes or 2**63
        for item, found in zip(items, results, strict=True):
            index, flags = len(table), 0
            label = None if item.label is None else item.label - labels_offset
            if label is not None and not 0 <= label < limit:
                found.add(kinds.LABEL_OUT_OF_RANGE, f"label {label}")
            for kind, detail in found.faults:
                flags |= kinds.BIT[kind]
                findings.add(kind, functools.partial(listing.describe, index), detail)
            table.append(label, flags, found)
        on_progress(len(table), fraction)

    items = listing.items(findings)
    waiting = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        try:
            while chunk := list(itertools.islice(items, _AT_ONCE)):
                future = pool.submit(_examine_all, chunk, near)
                # The listing is ahead of what is examined.
                waiting.append((chunk, future, listing.fraction))
                if len(waiting) >= _AHEAD * threads:
                    done, future, fraction = waiting.popleft()
                    take(done, future.result(), fraction)
            while waiting:
                done, future, fraction = waiting.popleft()
                take(done, future.result(), fraction)
        finally:
            pool.shutdown(cancel_futures=True)
    return table


def _examine_all(items: list[Item], near: bool) -> list[Examined]:
    return [_examine(item, near) for item in items]


def _examine(item: Item, near: bool) -> Examined:
    """Reads and examines a picture; whatever is wrong becomes a fault."""
    found = Examined()
    if item.fault is not None:
        found.add(item.fault, item.detail)
        return found
    content = item.content
    if content is None:
        try:
            content = files.read(os.fsdecode(item.path))
        except FileNotFoundError:
            found.add(kinds.MISSING_FILE)
            return found
        except OSError as error:
            found.add(kinds.UNREADABLE, str(error).split("\n")[0][:200])
            return found
    item.content = None
    return examine(content, near)
