"""The operations on a real HDFS, checked by a client of another make."""

import errno
import hashlib
import os
import signal
import time

import pytest
from hdfs_driver import RemoteCallError


def test_what_is_written_is_there_and_another_client_sees_it(
    driver, folder, seen_by_another_client
):
    said = driver.call("hdfs_checks:round_trip", folder)
    assert said["before"] is False
    assert said["large"] == said["large_expected"] == said["checksum"]
    assert said["small"] == [7, hashlib.sha256(b"one two").hexdigest()]
    assert said["read"] and said["part"]
    assert said["sizes"] == [7, 0]
    assert said["list"] == ["deep", "empty", "large", "small"]
    assert said["is_dir"] == [True, False]
    assert said["after"] == ["large", "small"]
    assert said["root"] is True
    assert seen_by_another_client(folder) == {
        "final/large": said["large_expected"],
        "final/small": [5, hashlib.sha256(b"other").hexdigest()],
    }


def test_what_cannot_be_done_is_refused_in_words(driver, folder):
    said = driver.call("hdfs_checks:refusals", folder)
    kinds = {name: kind for name, (kind, _) in said.items()}
    assert kinds == {
        "read_absent": "FileNotFoundError",
        "list_absent": "FileNotFoundError",
        "list_file": "NotADirectoryError",
        "remove_absent": "FileNotFoundError",
        "remove_folder": "IsADirectoryError",
        "rename_absent": "FileNotFoundError",
        "rename_over": "FileExistsError",
        "rename_into_absent": "FileNotFoundError",
        "colon": "ValueError",
        "bare_root": "ValueError",
    }
    assert "no ':' in names" in said["colon"][1]
    assert "below the root" in said["bare_root"][1]


def test_the_handler_of_sigterm_runs_after_hdfs_was_used(driver, folder):
    options, class_path = driver.call("hdfs_checks:prepare", folder)
    assert options == "-Xmx128m -Xrs"
    assert "hadoop-hdfs-2.7.3.jar" in class_path and "*" not in class_path
    os.kill(driver.pid, signal.SIGTERM)
    end = time.monotonic() + 10
    while not (seen := driver.call("hdfs_checks:signals_seen")):
        assert time.monotonic() < end
    assert seen == [signal.SIGTERM]


def test_permission_denied_is_told_as_that(driver, folder, written_by_another_client):
    written_by_another_client(f"{folder}/of_another_user", "x")
    with pytest.raises(RemoteCallError, match="Permission denied") as caught:
        driver.call("hdfs_checks:write", f"{folder}/mine", "x")
    assert caught.value.kind == "StorageError"
    assert caught.value.errno == errno.EACCES
