"""Runs of several workers on a real HDFS, each of which writes its own rows there."""

import re

import hdfs_driver
import numpy as np
import pytest

LOST = 76


@pytest.fixture(scope="module")
def story(hdfs_servers, user_environment, driver_process, tmp_path_factory):
    """One run on changing numbers of workers, and a failing server.

    Its checkpoints are of the steps 2 (one process with two replicas) and 4 (two
    workers, which lose the DataNode in the save after that).
    """
    logs = tmp_path_factory.mktemp("logs")
    run = f"{hdfs_servers.uri}/{logs.name}/run"
    found = {"run": run, "checkpoints": {}}
    # Java starts faster like this, once in each worker.
    options = "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    # A driver that forks workers; it never uses HDFS itself.
    environment = {**user_environment, "LIBHDFS_OPTS": options}
    workers = hdfs_driver.Driver(environment, logs / "driver.txt")

    def train(name, count, stop, *arguments, save_dir=run, fails=False):
        """With `fails`, a server fails in the last worker's save of step 6."""
        given = [f"--model_save_dir={save_dir}", f"--stop_at_step={stop}", *arguments]
        marks = [logs / f"{name}_started", logs / f"{name}_may_continue"]
        call = [str(logs / name), count, given, *map(str, marks if fails else [])]
        workers.begin("hdfs_workers:train_together", *call)
        if fails:
            workers.wait_for(marks[0])
            hdfs_servers.kill("datanode")
            marks[1].touch()
        found[name] = workers.end(200)
        hdfs_servers.heal()
        if save_dir == run:
            checkpoints = driver_process.call("hdfs_trainings:checkpoints", run)
            found["checkpoints"][name] = checkpoints

    try:
        train("unbroken", 1, 6, "--num_replicas=2", save_dir=logs / "run")
        train("one", 1, 2, "--num_replicas=2")
        train("no_datanode", 2, 12, "--save_checkpoints_steps=2", fails=True)
    finally:
        workers.stop()
    return found


def check_losses(story, name, first):
    """Each worker trained on from there, as if nothing had ever been interrupted."""
    [expected] = story["unbroken"]["losses"]
    for losses in story[name]["losses"]:
        steps = [int(step) for step in losses]
        assert steps and steps == list(range(first, first + len(steps)))
        both = [(losses[step], expected[step]) for step in losses if step in expected]
        found, wanted = np.vectorize(float.fromhex)(both).T
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_every_worker_writes_its_own_rows(story, seen_by_another_client):
    seen = seen_by_another_client(story["run"])
    rows = {
        step: sorted(
            name.rpartition("weight-")[2]
            for name in seen
            if name.startswith(f"step_{step:08d}/rows/weight-")
        )
        for step in (2, 4)
    }
    assert rows[2] == ["0000000000-0000000011.npy"]
    assert rows[4] == ["0000000000-0000000006.npy", "0000000006-0000000011.npy"]


def test_more_workers_continue_until_a_server_goes_away_in_a_save(story):
    found = story["no_datanode"]
    assert sorted(found["statuses"]) == [1, LOST]
    for log, status in zip(found["logs"], found["statuses"], strict=True):
        teller = "" if status == 1 else r"Worker \d \(127.0.0.1:\d+\) failed: "
        error = f"{teller}A checkpoint could not be saved in .*Older checkpoints are un"
        assert re.search(f"(plsc_tf: error|ERROR):? {error}changed", log)
        assert f"Could not write {story['run']}/step_00000006.writing-" in log
    check_losses(story, "no_datanode", 3)
    sound = [["step_00000002", "step_00000004"], "step_00000004"]
    assert story["checkpoints"]["no_datanode"] == sound
