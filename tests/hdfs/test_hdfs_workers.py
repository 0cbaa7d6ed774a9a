"""Runs of several workers on a real HDFS, each of which writes its own rows there."""

import re

import hdfs_driver
import numpy as np
import pytest

TOGETHER = "hdfs_workers:train_together"
LOST = 76
KILLED = -9


@pytest.fixture(scope="module")
def workers(user_environment, tmp_path_factory):
    """A driver that forks workers; it never uses HDFS itself."""
    # Java starts faster like this, once in each worker.
    options = "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    log = tmp_path_factory.mktemp("workers") / "log.txt"
    process = hdfs_driver.Driver({**user_environment, "LIBHDFS_OPTS": options}, log)
    yield process
    process.stop()


@pytest.fixture(scope="module")
def story(hdfs_servers, workers, driver_process, tmp_path_factory):
    """One run on changing numbers of workers, and what befalls it.

    Its checkpoints are of the steps 2 (one process with two replicas) and 4 (three
    workers). What is broken goes on from one of them and saves none.
    """
    logs = tmp_path_factory.mktemp("logs")
    run = f"{hdfs_servers.uri}/elastic/run"
    told = {"run": run, "checkpoints": {}}

    def train(name, count, stop, *, save_dir=run, kills=None, fails=None, **options):
        """`kills` a worker in mid-save; a server `fails` while the last one saves."""
        options = {"model_save_dir": save_dir, "stop_at_step": stop, **options}
        broken, marks = None, [logs / f"{name}_begun", logs / f"{name}_go_on"]
        if kills is not None:
            broken = [kills, 0]
        if fails:
            broken = [count - 1, 0, *map(str, marks)]
        workers.begin(TOGETHER, str(logs / name), count, options, broken)
        if fails:
            workers.wait_for(marks[0])
            hdfs_servers.kill(fails)
            marks[1].touch()
        told[name] = workers.end(200)
        hdfs_servers.heal()
        if save_dir == run:
            found = driver_process.call("hdfs_trainings:checkpoints", run)
            told["checkpoints"][name] = found

    train("unbroken", 1, 12, save_dir=str(logs / "run"), num_replicas=2)
    train("one", 1, 2, num_replicas=2)
    saves = {"save_checkpoints_steps": 3}
    train("worker_killed", 2, 12, kills=1, **saves)
    train("three", 3, 4)
    train("no_datanode", 4, 12, fails="datanode", **saves)
    train("no_namenode", 2, 12, fails="namenode", **saves)
    train("one_again", 1, 6, num_replicas=1)
    told["train"] = train
    return told


def one_error(log):
    """The message that a worker ended with, by itself or where it hung in a step."""
    found = re.findall(r"^(?:plsc_tf: error|[\d:]+ ERROR):? (.* .*)", log, re.MULTILINE)
    found = [line for line in found if not line.startswith("This process did not end")]
    assert len(found) == 1, log
    return found[0]


def check_losses(story, name, first):
    """Each worker trained on from there, as if nothing had ever been interrupted."""
    [expected] = story["unbroken"]["losses"]
    for losses in story[name]["losses"]:
        steps = [int(step) for step in losses]
        assert steps and steps == list(range(first, first + len(steps)))
        found = [float.fromhex(loss) for loss in losses.values()]
        wanted = [float.fromhex(expected[step]) for step in losses]
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [("one", 1, 1), ("three", 3, 3), ("one_again", 1, 5)],
)
def test_a_run_goes_on_on_other_numbers_of_workers(story, name, count, first):
    assert story[name]["statuses"] == [0] * count
    check_losses(story, name, first)
    assert len(story[name]["losses"][0]) == 2
    saved = [f"step_{step:08d}" for step in range(2, first + 2, 2)]
    assert story["checkpoints"][name] == [saved, saved[-1]]


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
    assert rows[4] == [
        "0000000000-0000000004.npy",
        "0000000004-0000000008.npy",
        "0000000008-0000000011.npy",
    ]
    # Of what was broken, and of the look whether all share the folder, nothing stays.
    assert {name.partition("/")[0] for name in seen} == {
        *(f"step_{step:08d}" for step in (2, 4, 6)),
        "flags.cfg",
        "loss.png",
        "metrics.csv",
        "metrics.jsonl",
        "report.html",
        "results.json",
        "starts.jsonl",
    }


def check_killed(story, name, victim, first, saved):
    """One of two workers was killed in mid-save, the other one says so."""
    found = story[name]
    assert found["statuses"][victim] == KILLED
    assert found["statuses"][1 - victim] == LOST
    message = one_error(found["logs"][1 - victim])
    assert re.match(
        rf"Worker {victim} \(127.0.0.1:\d+\)(, the chief,)? has gone", message
    )
    check_losses(story, name, first)
    assert story["checkpoints"][name] == [saved, saved[-1]]


def test_a_worker_killed_in_mid_save_leaves_no_checkpoint(story):
    check_killed(story, "worker_killed", 1, 3, ["step_00000002"])


@pytest.mark.parametrize(("name", "count"), [("no_datanode", 4), ("no_namenode", 2)])
def test_a_server_that_goes_away_in_a_save_ends_all_workers(story, name, count):
    found = story[name]
    assert sorted(found["statuses"]) == [1, *[LOST] * (count - 1)]
    for log, status in zip(found["logs"], found["statuses"], strict=True):
        message = one_error(log)
        teller = "" if status == 1 else r"Worker \d \(127.0.0.1:\d+\) failed: "
        assert re.match(f"{teller}A checkpoint could not be saved in ", message)
        assert "Older checkpoints are as they were." in message
        assert f"Could not write {story['run']}/step_00000006.writing-" in message
    check_losses(story, name, 5)
    sound = [["step_00000002", "step_00000004"], "step_00000004"]
    assert story["checkpoints"][name] == sound


def test_a_folder_that_is_another_one_on_another_worker(workers, hdfs, tmp_path):
    folders = [f"{hdfs.uri}/mounted/{name}" for name in ("a", "b")]
    told = workers.call("hdfs_workers:see_each_other", str(tmp_path), folders)
    for message in told:
        assert message.startswith("model_save_dir must be one folder that all workers")
        assert "Worker 1 does not see what worker 0 writes." in message


@pytest.mark.slow
def test_a_chief_killed_in_mid_save_leaves_what_the_next_one_removes(
    story, seen_by_another_client
):
    saved = [f"step_{step:08d}" for step in (2, 4, 6)]
    story["train"]("chief_killed", 2, 12, kills=0, save_checkpoints_steps=9)
    check_killed(story, "chief_killed", 0, 7, saved)
    names = {name.partition("/")[0] for name in seen_by_another_client(story["run"])}
    assert [name for name in names if name.startswith("step_00000009.writing-")]
    story["train"]("two", 2, 10)
    check_losses(story, "two", 7)
    names = {name.partition("/")[0] for name in seen_by_another_client(story["run"])}
    assert names == {*saved, "step_00000010", "flags.cfg", "results.json"}
