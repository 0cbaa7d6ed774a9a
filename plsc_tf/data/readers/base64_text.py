"""PLSC's base64 part files: lines of an image in base64 and a label, or the reverse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.readers.packed import packed_source
from plsc_tf.data.records import base64_text
from plsc_tf.data.records.packed_files import find_packed
from plsc_tf.data.source import IndexedSource

# Lines are looked for in pieces of this size.
_PIECE_BYTES = 1 << 24
# TensorFlow takes base64 in the alphabet for addresses only, of which "+" and "/" are
# no part; they become it, and its own two become characters of no alphabet.
_TO_URL_SAFE = bytes.maketrans(b"+/-_", b"-_!!")
_FILE_LIST = "file_list.txt"


def base64_files(
    files: Sequence[str],
    *,
    name: str = "base64_text",
    num_classes: int | None = None,
    labels_offset: int = 0,
) -> IndexedSource:
    """Reads base64 part files in any order; their lines are found when they are opened.

    Args:
        files: paths of the files.
        name: for messages.
        num_classes: number of classes; None means largest label + 1.
        labels_offset: subtracted from each label.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: no files, no lines, or a line that is wrong; names it.
    """
    files = list(files)
    packed, labels = find_packed(files, find_lines)
    if not len(packed):
        raise ValueError(
            f"{name} holds no images: {', '.join(files[:3]) or 'no files'}. Expected "
            "lines of an image in base64, a tab and a label."
        )

    def describe(number: int) -> str:
        file, record = packed.place(number)
        return f"image {record} of {file}"

    return packed_source(
        name,
        packed,
        lambda text, number: (text.translate(_TO_URL_SAFE), 0),
        # Half the processor time of binascii's, and it holds no lock of Python's.
        parse=tf.io.decode_base64,
        labels=labels - labels_offset,
        num_classes=num_classes,
        describe=describe,
    )


def find_lines(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the images of a base64 file.

    Returns:
        first byte and number of bytes of each image's text, and its label, int64.
    """
    columns = [], [], []
    base = 0
    for block in base64_text.read_blocks(path, _PIECE_BYTES):
        firsts, lasts = block.starts, block.cuts
        if block.label_first:
            firsts, lasts = block.cuts, block.ends
        firsts = np.array(firsts, np.int64) + block.label_first
        columns[0].append(firsts + base)
        columns[1].append(np.array(lasts, np.int64) - firsts)
        columns[2].append(np.array(block.labels, np.int64))
        base = block.offset
    empty = np.zeros(0, np.int64)
    return tuple(np.concatenate([empty, *column]) for column in columns)


def listed_files(folder: str) -> list[str]:
    """The part files that <folder>/file_list.txt names, one on each line.

    Raises:
        FileNotFoundError: no folder, no list, or a file of the list is missing.
        ValueError: the list is empty, or names a file twice.
    """
    place = paths.join(paths.require_folder(folder), _FILE_LIST)
    try:
        names = paths.read_names(place)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {_FILE_LIST}. {paths.names_in(folder)} "
            "Expected PLSC's list of base64 part files, one name on each line."
        ) from error
    return paths.expand(names, folder, flag=f"a line of {place}")
