"""Files on a real HDFS, checked by a client of another make, also when servers fail."""

import errno
import functools
import os
import signal

import hdfs_driver
import pytest
from blake3 import blake3
from hdfs_driver import RemoteCallError

from tests.storage.test_storage_files import EVERYWHERE
from tests.waiting import wait_for

TAKE, LOCK = "hdfs_checks:take_lock", "hdfs_checks:lock"


def digest(content):
    """A file as another client sees it."""
    return [len(content), blake3(content).hexdigest()]


@pytest.mark.parametrize("test", EVERYWHERE)
def test_operations_do_what_they_do_on_a_disk(driver, folder, test):
    driver.call("hdfs_checks:on_new_folder", test, f"{folder}/{test}")


def test_the_handler_of_sigterm_runs_after_hdfs_was_used(driver, folder):
    options, class_path = driver.call("hdfs_checks:prepare", folder)
    assert options == "-Xmx128m -Xrs"
    assert "hadoop-hdfs-2.7.3.jar" in class_path and "*" not in class_path
    os.kill(driver.pid, signal.SIGTERM)
    seen = functools.partial(driver.call, "hdfs_checks:signals_seen")
    wait_for(seen)
    assert seen() == [signal.SIGTERM]


def test_permission_denied_is_told_as_that(driver, folder, written_by_another_client):
    written_by_another_client(f"{folder}/of_another_user", "x")
    with pytest.raises(RemoteCallError, match="Permission denied") as caught:
        driver.call("hdfs_checks:write", f"{folder}/mine", "x")
    assert (caught.value.kind, caught.value.errno) == ("StorageError", errno.EACCES)


def test_a_namenode_that_went_down_is_an_error_that_says_so(driver, hdfs, folder):
    driver.call("hdfs_checks:write", f"{folder}/old", "old")
    driver.call(TAKE, "first", folder, {"machine": "a"})
    hdfs.kill("namenode")
    with pytest.raises(RemoteCallError, match="is unreachable") as caught:
        driver.call("hdfs_checks:list_dir", folder)
    assert caught.value.kind == "StorageError"
    assert "connection was refused. Is the NameNode running" in str(caught.value)
    # A fault that passes is waited for.
    driver.begin("hdfs_checks:exists", f"{folder}/old", 8, 0.5, 30)
    hdfs.heal()
    assert driver.end() is True
    # Nor does it cost the lock.
    driver.call(LOCK, "first", "check")
    with pytest.raises(RemoteCallError, match="FolderInUseError.* is in use: "):
        driver.call(TAKE, "second", folder, {"machine": "b"})
    driver.call(LOCK, "first", "release")
    assert driver.call("hdfs_checks:list_dir", folder) == ["old"]


def test_a_namenode_that_stops_answering_ends_within_the_limit(driver, hdfs, folder):
    driver.call("hdfs_checks:prepare", folder)
    hdfs.freeze("namenode")
    with pytest.raises(RemoteCallError, match="no answer within 2 seconds") as caught:
        driver.call("hdfs_checks:exists", folder, 1, 0.1, 2, limit_s=20)
    assert (caught.value.kind, caught.value.errno) == ("StorageError", errno.ETIMEDOUT)
    hdfs.thaw("namenode")
    assert driver.call("hdfs_checks:exists", folder, 1, 0.1, 30) is False


def test_the_second_writer_is_refused_until_the_first_is_killed(
    driver, folder, user_environment, tmp_path
):
    # Long enough that only the kernel's word lets the third one in, and that the first
    # is not killed in the middle of a renewal, which empties its claim.
    options = {"lease_s": 600, "renew_s": 600}
    other = hdfs_driver.Driver(user_environment, tmp_path / "log.txt")
    try:
        other.call(TAKE, "first", folder, options)
        with pytest.raises(RemoteCallError, match="FolderInUseError.* in use") as seen:
            driver.call(TAKE, "second", folder, options)
        assert f"process {other.pid} on" in str(seen.value)
        other.call(LOCK, "first", "check")
    finally:
        other.stop()  # kill -9
    driver.call(TAKE, "third", folder, options)
    driver.call(LOCK, "third", "check")
    driver.call(LOCK, "third", "release")
