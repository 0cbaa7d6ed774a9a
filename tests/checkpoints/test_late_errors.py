"""A file whose errors are told to nobody before all is done."""

import pathlib
import subprocess
import sys

import h5py
import numpy as np
import pytest

from plsc_tf.checkpoints.late_errors import late_errors


def test_what_is_written_is_there(tmp_path):
    path = str(tmp_path / "a")
    rows = np.arange(5000, dtype=np.float32)
    with late_errors(path) as file, h5py.File(file, "w") as stored:
        for number in range(20):
            stored[f"g{number}/rows"] = rows + number
    with h5py.File(path) as stored:
        for number in range(20):
            np.testing.assert_array_equal(stored[f"g{number}/rows"], rows + number)
    with late_errors(path) as file:  # another file in its place
        np.savez(file, rows=rows)
    with np.load(path) as stored:
        np.testing.assert_array_equal(stored["rows"], rows)


@pytest.mark.parametrize("body", ["h5", "npz", "raises"])
def test_the_error_of_the_disk_comes_in_the_end(body):
    """/dev/full takes nothing."""
    done = []
    with pytest.raises(OSError, match="No space left.*/dev/full") as caught:
        with late_errors("/dev/full") as file:
            if body == "h5":
                with h5py.File(file, "w") as stored:
                    stored["a"] = np.ones(10_000)
            elif body == "npz":
                np.savez(file, a=np.ones(10_000))
            else:
                file.write(b"abc")
                raise RuntimeError("whatever comes of it")
            done.append(body)
    assert caught.value.errno == 28
    assert done == ([] if body == "raises" else [body])


def test_other_errors_are_their_own(tmp_path):
    with pytest.raises(RuntimeError, match="another"), late_errors(tmp_path / "a"):
        raise RuntimeError("another")
    with pytest.raises(FileNotFoundError):
        with late_errors(tmp_path / "missing" / "a"):
            pass


def test_the_process_ends_as_ever_after_an_error():
    """A file that HDF5 opens itself is tried once more then, and that crashes."""
    code = (
        "import h5py\n"
        "from plsc_tf.checkpoints.late_errors import late_errors\n"
        "try:\n"
        "    with late_errors('/dev/full') as file, h5py.File(file, 'w') as stored:\n"
        "        stored['a'] = range(10_000)\n"
        "except OSError as error:\n"
        "    print(error.errno)\n"
    )
    root = pathlib.Path(__file__).parents[2]
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "28\n", "")
