"""Reads and writes PLSC's base64 part files.

Each line has an image in base64 and a label. PLSC's documentation and the output of
its tool have `base64<TAB>label`, but the tool itself reads `label<TAB>base64`.
"""

import binascii
import glob
from collections.abc import Iterator, Sequence

import pybase64

from plsc_tf.data import paths
from plsc_tf.data.readers.packed import find_packed, packed_source
from plsc_tf.data.source import IndexedSource
from plsc_tf.requirements import require
from plsc_tf.storage import files

# A line may contain a large photograph.
LONGEST_LINE = 64 << 20
# Digits of a label, and bytes of a line that messages show.
_MOST_DIGITS, _SHOWN = 18, 60
_FILE_LIST = "file_list.txt"


def base64_files(part_files: Sequence[str], **numbers: int | None) -> IndexedSource:
    """Opens base64 part files for random access; reads them once to locate the lines.

    Args:
        part_files: paths of the files.
        **numbers: num_classes and labels_offset of `packed_source`.

    Raises:
        FileNotFoundError: one of the files does not exist.
        ValueError: there are no files or no lines, or a line is invalid; the message
            names the line.
    """
    packed, labels = find_packed("base64_text", list(part_files), find_lines)
    return packed_source("base64_text", packed, decode, labels=labels, **numbers)


def find_lines(path: str) -> Iterator[tuple[int, int, int]]:
    """Yields the position and length of each image's base64 text, and its label.

    Raises:
        ValueError: a line is invalid; the message names the file and the line.
    """
    for number, end, line in read_lines(path):
        try:
            text, label = parse_line(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
        yield end - len(line) + line.index(text), len(text), label


def read_lines(
    path: str, position: int = 0, number: int = 1
) -> Iterator[tuple[int, int, bytes]]:
    """Yields (number, position of the next line, line) for each nonempty line.

    Args:
        path: path of the file, on any store.
        position: position of the first line to read.
        number: number of that line, from 1.
    """
    for place in paths.locate_lines(path, position, number, longest=LONGEST_LINE):
        if not place[2].isspace():
            yield place


def listed_files(
    folder: str, file_list: str = "", flag: str = "dataset_dir"
) -> list[str]:
    """Returns the part files listed in <folder>/file_list.txt, one per line.

    Args:
        folder: folder of the part files.
        file_list: another list, in the folder or else in the working directory, as in
            PLSC; "" uses file_list.txt.
        flag: the option that names the folder, for error messages.

    Raises:
        FileNotFoundError: the folder, the list or a file in the list does not exist.
        ValueError: the list is empty, or names a file twice.
    """
    paths.require_folder(folder, flag)
    tried = [file_list] if file_list else []
    if "://" not in file_list:
        tried.insert(0, paths.join(folder, file_list or _FILE_LIST))
    if (place := next(filter(files.exists, tried), None)) is None:
        raise FileNotFoundError(
            "Expected PLSC's list of base64 part files, one name on each line. There "
            f"is no {' or '.join(tried)}. {paths.names_in(folder)}"
        )
    # As patterns, the names could match the files of the whole machine many times.
    return paths.expand(map(glob.escape, paths.read_names(place)), folder, flag=place)


def parse_line(line: bytes) -> tuple[bytes, int]:
    """Returns a line's base64 text, without decoding it, and its label.

    The label is the column of digits. The text of an image is never all digits, because
    the base64 text of JPEG, PNG and GIF files begins with a letter or "/".

    Args:
        line: the line, with or without end-of-line characters.

    Raises:
        ValueError: the line is invalid.
    """
    line = line.rstrip(b"\r\n")
    label, tab, text = line.partition(b"\t")
    if not label.isdigit() or text.isdigit():
        text, tab, label = line.rpartition(b"\t")
    # Check the digits, because int() accepts blanks, signs and underscores.
    good = label.isdigit() and len(label) <= _MOST_DIGITS
    good = good and tab and text and b"\t" not in text and not len(text) % 4
    rule = "expected an image in base64, whose length is a multiple of 4, a tab and a "
    rule += f"label, a whole number of at most {_MOST_DIGITS} digits"
    shown = {"text": text[:_SHOWN], "label": label[:_SHOWN]}
    require(good, rule, **shown, characters=len(text))
    return text, int(label)


def unpack(line: bytes) -> tuple[bytes, int]:
    """Returns (encoded image, label) of a line.

    Raises:
        ValueError: the line is invalid.
    """
    text, label = parse_line(line)
    return decode(text), label


def decode(text: bytes) -> bytes:
    """Returns the image encoded in a base64 text.

    Raises:
        ValueError: the text is not base64 or is empty.
    """
    try:
        # It takes a tenth of binascii's time.
        image = pybase64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the image is not base64: {error}.") from error
    require(image, "the image is empty: expected its bytes in base64")
    return image


def encode_line(image: bytes, label: int) -> bytes:
    """Returns the line `base64<TAB>label`, with its newline."""
    return binascii.b2a_base64(image, newline=False) + b"\t%d\n" % label
