"""Paddle's two forms of a variable."""

import pickle
import struct

import numpy as np
import pytest

from plsc_tf.checkpoints.importers import paddle_files
from tests.data.pickled import Call
from tests.importers.paddle_writer import saved, stream, varint

ARRAY = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
# What Paddle 3.3 wrote for float32 [2, 1]: 1.0, -2.0 (`paddle.static.io.save_vars`).
FROM_PADDLE = bytes.fromhex(
    "00000000 0000000000000000 00000000 06000000 080510021001 0000803f 000000c0"
)


def only(path):
    (variable,) = paddle_files.variables(str(path))
    return variable


def test_bytes_of_paddle_itself(tmp_path):
    path = tmp_path / "fc_0.w_0"
    path.write_bytes(FROM_PADDLE)
    np.testing.assert_array_equal(only(path).open(), [[1.0], [-2.0]])
    assert stream(np.array([[1.0], [-2.0]], np.float32)) == FROM_PADDLE


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("packed", [False, True])
def test_types_and_both_forms_of_dimensions(tmp_path, dtype, packed):
    path, array = tmp_path / "a.w_0", ARRAY.astype(dtype)
    path.write_bytes(stream(array, packed))
    found = only(path)
    assert (found.name, found.shape) == ("a.w_0", (300, 5))
    assert found.open().dtype == dtype
    assert isinstance(found.open(), np.memmap)  # the numbers stay in the file
    np.testing.assert_array_equal(found.open(), array)


@pytest.mark.parametrize("name", ["a.w_0", "a.w_0.pdparam"])
def test_a_file_that_is_cut_off_anywhere_is_refused(tmp_path, name):
    pickled, path = name.endswith(".pdparam"), tmp_path / name
    whole = saved(ARRAY[:2]) if pickled else stream(ARRAY[:2])
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=f"{name} is"):
            paddle_files.variables(str(path))


# The first is too long by a byte, the last one's number of elements is 0 modulo 2^64.
@pytest.mark.parametrize(
    "content",
    [
        stream(ARRAY) + b"x",
        struct.pack("<IQ", 0, 2**64 - 1),
        struct.pack("<IQQ", 0, 1, 2**64 - 1),
        struct.pack("<IQIi", 0, 0, 0, -(2**31)),
        *(
            FROM_PADDLE[:16] + struct.pack("<i", len(dims) + 2) + b"\x08\x05" + dims
            for dims in (b"\x10" + varint(2**64 - 1), (b"\x10" + varint(2**32)) * 2)
        ),
    ],
)
def test_sizes_that_do_not_fit_the_file_are_refused(tmp_path, content):
    path = tmp_path / "a.w_0"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="a.w_0 is"):
        paddle_files.variables(str(path))


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    "content",
    [
        lambda array, protocol: saved(array, protocol),
        pickle.dumps,
        lambda array, protocol: pickle.dumps({"a.w_0": array}, protocol),
        lambda array, protocol: pickle.dumps(("a.w_0", array), protocol),
    ],
    ids=["tensor", "array", "dict", "pair"],
)
def test_pickles_of_one_array(tmp_path, content, protocol):
    path = tmp_path / "a.w_0.pdparam"
    path.write_bytes(content(ARRAY, protocol))
    found = only(path)
    assert (found.name, found.shape) == ("a.w_0", (300, 5))
    np.testing.assert_array_equal(found.open(), ARRAY)


def test_a_pickle_of_many_arrays(tmp_path):
    path = tmp_path / "model.pdparam"
    names = {"a": "x", "b": "y"}
    content = {"x": ARRAY, "y": ARRAY[0], "StructuredToParameterName@@": names}
    path.write_bytes(pickle.dumps(content, 4))
    found = {item.name: item for item in paddle_files.variables(str(path))}
    assert set(found) == {"x", "y"}
    np.testing.assert_array_equal(found["x"].open(), ARRAY)
    np.testing.assert_array_equal(found["y"].open(), ARRAY[0])


def test_a_pickle_that_wants_to_run_something_is_refused(tmp_path):
    path, sign = tmp_path / "a.w_0.pdparam", tmp_path / "it_ran"
    path.write_bytes(pickle.dumps({"a": Call(open, str(sign), "w")}))
    with pytest.raises(ValueError, match="refused|not a pickle of plain data"):
        paddle_files.variables(str(path))
    assert not sign.exists()


def test_what_is_no_array_is_refused(tmp_path):
    path = tmp_path / "a.pdparam"
    path.write_bytes(pickle.dumps({"a": "text"}))
    with pytest.raises(ValueError, match="'a' in .* must be an array.*=str"):
        paddle_files.variables(str(path))


# A file of a megabyte would make 75 GB of copies.
def test_a_table_is_not_copied_again_and_again(tmp_path):
    items = b"]q\x00(" + b"K\x01K\x02\x86q\x01" + b"h\x01" * 999 + b"e0"
    copies, path = b"h\x02h\x00\x85R" * 1000, tmp_path / "a.pdparam"
    path.write_bytes(
        b"\x80\x02" + items + b"ccollections\nOrderedDict\nq\x020](" + copies + b"e."
    )
    with pytest.raises(ValueError, match="copies of more values than the file has"):
        paddle_files.variables(str(path))
