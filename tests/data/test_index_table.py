"""The index of a record file: read back, or refused before memory is taken."""

import io
import os

import numpy as np
import pytest

from plsc_tf.data.readers.packed import read_index

ROWS = np.array([[12, 5, 0], [33, 7, 1]], np.int64)


def saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.fixture
def parse(tmp_path):
    """Reads an index of a file of `size` bytes."""

    def read(data, size=44):
        with open(tmp_path / "p", "wb") as file:
            file.truncate(size)
        (tmp_path / "p.index.npy").write_bytes(data)
        return read_index(str(tmp_path / "p"))

    return read


# Otherwise, a label that is corrected in the file stays wrong, and nothing says so.
def test_the_index_is_read_until_its_file_changes(parse, tmp_path):
    np.testing.assert_array_equal(parse(saved(ROWS)), ROWS.T)
    later = (tmp_path / "p.index.npy").stat().st_mtime + 1
    os.utime(tmp_path / "p", (later, later))
    assert read_index(str(tmp_path / "p")) is None


@pytest.mark.parametrize("size", [39, 73, 2**40])
def test_the_index_of_another_file_is_none(parse, size):
    assert parse(saved(ROWS), size) is None


# The last row overlaps: if all did, a block of records would fill the memory.
@pytest.mark.parametrize(
    "row", [(2**62, 2**62, 0), (-1, 5, 0), (12, -5, 0), (0, 40, 0)]
)
def test_places_outside_of_the_file_or_that_overlap_are_none(parse, row):
    assert parse(saved(np.array([[33, 7, 1], row]))) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        saved(ROWS)[:100],
        saved(ROWS)[:-1],
        saved(ROWS.astype(np.int32)),
        saved(ROWS[:, :2]),
        saved(np.array([[print, 1, 2]], object)),
        saved(ROWS).replace(b"(2, 3)", b"(2**9"),
        saved(ROWS).replace(b"(2, 3)", b"(9" + b"9" * 40 + b", 3)"),
    ],
)
def test_what_is_no_index_is_refused(parse, data):
    with pytest.raises(ValueError, match=r"p.index.npy is not (an index|a .npy file)"):
        parse(data)
