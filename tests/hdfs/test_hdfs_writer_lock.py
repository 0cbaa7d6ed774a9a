"""A folder on a real HDFS has one writer."""

import hdfs_driver
import pytest
from hdfs_driver import RemoteCallError

TAKE = "hdfs_locks:take"


@pytest.fixture
def other_process(user_environment, tmp_path):
    process = hdfs_driver.Driver(user_environment, tmp_path / "log.txt")
    yield process
    process.stop()


def test_the_second_is_refused_until_the_first_is_killed(driver, folder, other_process):
    # Long enough that nothing but the kernel's word lets the second one in.
    options = {"lease_s": 600}
    other_process.call(TAKE, "first", folder, options)
    with pytest.raises(RemoteCallError, match="FolderInUseError.* is in use: ") as seen:
        driver.call(TAKE, "second", folder, options)
    assert f"process {other_process.pid} on" in str(seen.value)
    other_process.call("hdfs_locks:check", "first")
    other_process.stop()  # kill -9
    driver.call(TAKE, "third", folder, options)
    driver.call("hdfs_locks:check", "third")
    driver.call("hdfs_locks:give_up", "third")


def test_another_machine_takes_over_when_the_lease_ends(
    driver, folder, seen_by_another_client
):
    driver.call(TAKE, "first", folder, {"machine": "a"})
    with pytest.raises(RemoteCallError, match="FolderInUseError.* is in use: "):
        driver.call(TAKE, "second", folder, {"machine": "b"})
    driver.call("hdfs_locks:check", "first")
    driver.call("hdfs_locks:give_up", "first")
    assert seen_by_another_client(folder) == {}
    # One that gives no sign of life.
    driver.call("hdfs_locks:take_and_sleep", "sleeper", folder)
    driver.call(TAKE, "second", folder, {"machine": "b", "lease_s": 2})
    with pytest.raises(RemoteCallError, match="FolderInUseError.*may no longer write"):
        driver.call("hdfs_locks:check", "sleeper")
    driver.call("hdfs_locks:check", "second")
    driver.call("hdfs_locks:give_up", "second")


def test_a_namenode_that_is_down_for_a_while_costs_nobody_the_lock(
    driver, hdfs, folder
):
    driver.call(TAKE, "first", folder, {"machine": "a"})
    hdfs.kill("namenode")
    hdfs.heal()
    driver.call("hdfs_locks:check", "first")
    with pytest.raises(RemoteCallError, match="FolderInUseError.* is in use: "):
        driver.call(TAKE, "second", folder, {"machine": "b"})
    driver.call("hdfs_locks:give_up", "first")
