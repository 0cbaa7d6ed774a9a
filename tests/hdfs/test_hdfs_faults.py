"""Servers that are down, frozen or die in the middle: an error, never "absent"."""

import errno
import hashlib
import time

import pytest
from hdfs_driver import RemoteCallError


def test_a_namenode_that_went_down_is_an_error_that_says_so(driver, hdfs, folder):
    driver.call("hdfs_checks:write", f"{folder}/old", "old")
    hdfs.kill("namenode")
    for function in ("exists", "list_dir"):
        arguments = [30] if function == "exists" else []
        with pytest.raises(RemoteCallError, match="is unreachable") as caught:
            driver.call(f"hdfs_checks:{function}", folder, *arguments)
        assert caught.value.kind == "StorageError"
        assert "connection was refused. Is the NameNode running" in str(caught.value)
    # A fault that passes is waited for.
    driver.begin("hdfs_checks:exists_patiently", f"{folder}/old")
    hdfs.heal()
    assert driver.end() is True
    assert driver.call("hdfs_checks:list_dir", folder) == ["old"]


def test_a_namenode_that_stops_answering_ends_within_the_limit(driver, hdfs, folder):
    driver.call("hdfs_checks:prepare", folder)
    hdfs.freeze("namenode")
    with pytest.raises(RemoteCallError, match="no answer within 2 seconds") as caught:
        driver.call("hdfs_checks:exists", folder, 2, limit_s=20)
    assert caught.value.kind == "StorageError"
    assert caught.value.errno == errno.ETIMEDOUT
    hdfs.thaw("namenode")
    assert driver.call("hdfs_checks:exists", folder, 30) is False


def test_a_datanode_killed_in_mid_write_leaves_the_older_files(
    driver, hdfs, folder, tmp_path, seen_by_another_client
):
    driver.call("hdfs_checks:write", f"{folder}/old", "old")
    begun, go_on = tmp_path / "begun", tmp_path / "go_on"
    driver.begin("hdfs_checks:write_slowly", f"{folder}/new", str(begun), str(go_on))
    while not begun.exists():
        time.sleep(0.05)
    hdfs.kill("datanode")
    go_on.touch()
    with pytest.raises(RemoteCallError, match=r"Could not write .*/new") as caught:
        driver.end()
    assert caught.value.kind == "StorageError"
    hdfs.heal()
    assert seen_by_another_client(folder) == {
        "old": [3, hashlib.sha256(b"old").hexdigest()]
    }
    assert driver.call("hdfs_checks:write", f"{folder}/new", "new")[0] == 3
