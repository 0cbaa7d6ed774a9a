"""The index of a record file: read back, or refused before memory is taken."""

import io

import numpy as np
import pytest

from plsc_tf.data.records.packed_files import parse_index

ROWS = np.array([[12, 5, 0], [33, 7, 1]], np.int64)


def saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_reads_what_numpy_saved():
    begins, lengths, labels = parse_index(saved(ROWS), "p.index.npy", 44)
    np.testing.assert_array_equal([begins, lengths, labels], ROWS.T)


@pytest.mark.parametrize("size", [39, 73, 2**40])
def test_the_index_of_another_file_is_none(size):
    assert parse_index(saved(ROWS), "p.index.npy", size) is None


@pytest.mark.parametrize("row", [(2**62, 2**62, 0), (-1, 5, 0), (12, -5, 0)])
def test_places_outside_of_the_file_are_none(row):
    assert parse_index(saved(np.array([[33, 7, 1], row])), "p.index.npy", 44) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"junk",
        saved(ROWS)[:100],
        saved(ROWS)[:-1],
        saved(ROWS) + b"x",
        saved(ROWS.astype(np.int32)),
        saved(np.asfortranarray(ROWS)),
        saved(ROWS[:, :2]),
        saved(np.array([[print, 1, 2]], object)),
        saved(ROWS).replace(b"(2, 3)", b"(2**9"),
        saved(ROWS).replace(b"(2, 3)", b"(9" + b"9" * 40 + b", 3)"),
    ],
)
def test_what_is_no_index_is_refused(data):
    with pytest.raises(ValueError, match="p.index.npy is no index"):
        parse_index(data, "p.index.npy", 44)
