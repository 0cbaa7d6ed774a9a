"""Trainings whose checkpoints go straight to a real HDFS."""

import json

import pytest
from blake3 import blake3

TRAIN = "hdfs_trainings:train"


@pytest.fixture(scope="module")
def runs(hdfs_servers, driver_process, tmp_path_factory):
    """A run on HDFS that was stopped and resumed, and an unbroken local one."""
    local = tmp_path_factory.mktemp("local") / "run"
    unbroken = driver_process.call(TRAIN, {"model_save_dir": str(local)})
    folder = f"{hdfs_servers.uri}/{local.parent.name}/run"
    options = {"model_save_dir": folder, "with_test": True, "save_best": True}
    options |= {"save_checkpoints_steps": 4, "keep_checkpoint_max": 2}
    stopped = {**options, "stop_at_step": 6, "with_test": False}
    first = driver_process.call(TRAIN, stopped)
    second = driver_process.call(TRAIN, options)
    assert [part["error"] for part in (unbroken, first, second)] == [None] * 3
    return {"folder": folder, "unbroken": unbroken, "parts": [first, second]}


def test_a_run_on_hdfs_resumes_exactly(runs):
    first, second = (part["losses"] for part in runs["parts"])
    assert list(first) == [str(step) for step in range(1, 7)]
    assert list(second) == [str(step) for step in range(7, 11)]
    assert {**first, **second} == runs["unbroken"]["losses"]
    outcome = runs["parts"][1]["outcome"]
    assert outcome["steps"] == 10
    assert outcome["checkpoint_dir"] == f"{runs['folder']}/0"


def test_all_of_a_run_is_on_hdfs(runs, driver, seen_by_another_client):
    seen = seen_by_another_client(runs["folder"])
    folders = {name.partition("/")[0] for name in seen if "/" in name}
    # Of steps 4, 6, 8 and the end of epoch 0 the last two stay.
    assert folders == {"step_00000008", "0", "tensorboard"}
    written = "flags.cfg loss.png metrics.csv metrics.jsonl report.html results.json"
    assert {name for name in seen if "/" not in name} == set(written.split())
    for name in ("step_00000008", "0"):
        place = f"{runs['folder']}/{name}/manifest.json"
        manifest = json.loads(driver.call("hdfs_trainings:read", place))
        described = {
            f"{name}/{file}": [entry["bytes"], entry["blake3"]]
            for file, entry in manifest["files"].items()
        }
        there = {file: of for file, of in seen.items() if file.startswith(f"{name}/")}
        assert there.pop(f"{name}/manifest.json")[0] > 0
        assert there == described
    results = driver.call("hdfs_trainings:read", f"{runs['folder']}/results.json")
    assert json.loads(results) == runs["parts"][1]["outcome"]
    flags = driver.call("hdfs_trainings:read", f"{runs['folder']}/flags.cfg")
    assert f"--model_save_dir={runs['folder']}\n" in flags


def test_a_run_on_hdfs_is_evaluated_and_exported(runs, driver, seen_by_another_client):
    folder = runs["folder"]
    said = driver.call("hdfs_trainings:evaluate", folder)
    assert said["checkpoint"] == f"{folder}/0"
    figures = runs["parts"][1]["outcome"]["verification"]["mock"]
    assert said["mock: accuracy"] == f"{figures['accuracy']:.5f} ± {figures['std']:.5f}"
    said = driver.call("hdfs_trainings:export", f"{folder}/0")
    assert said["SavedModel"] == f"{folder}/export/1"
    assert said["serve it with"].endswith(f"--model_base_path={folder}/export")
    seen = seen_by_another_client(f"{folder}/export")
    assert "1/saved_model.pb" in seen
    assert all(name.startswith("1/") for name in seen)
    path = f"{folder}/export/1/assets.extra/model_card.json"
    card = driver.call("hdfs_trainings:read", path)
    assert json.loads(card)["checkpoint"] == f"{folder}/0"


def test_losses_are_not_added_to_a_file_on_hdfs(driver, folder, seen_by_another_client):
    said = driver.call(TRAIN, {"model_save_dir": folder, "save_losses": True})
    kind, message = said["error"]
    assert kind == "ValueError" and "requires a local disk" in message
    assert not said["losses"]
    assert seen_by_another_client(folder) == {}


def test_a_namenode_down_is_no_empty_run(runs, driver, hdfs, seen_by_another_client):
    before = seen_by_another_client(runs["folder"])
    hdfs.kill("namenode")
    options = {"model_save_dir": runs["folder"], "num_epochs": 2}
    said = driver.call("hdfs_trainings:train_without_waits", options)
    kind, message = said["error"]
    assert kind == "StorageError"
    assert "connection was refused. Is the NameNode running" in message
    assert not said["losses"]
    hdfs.heal()
    assert seen_by_another_client(runs["folder"]) == before


def test_a_datanode_killed_in_mid_save_costs_that_checkpoint_only(
    driver, hdfs, folder, tmp_path, seen_by_another_client
):
    marks = [tmp_path / mark for mark in ("started", "may_continue", "over", "mended")]
    options = {"model_save_dir": folder, "save_checkpoints_steps": 2}
    options |= {"on_save_error": "continue", "stop_at_step": 6}
    # The save after step 4 waits in the middle of a file.
    driver.begin(
        "hdfs_trainings:train_past_a_broken_save", options, 4, *map(str, marks)
    )
    started, may_continue, over, mended = marks
    driver.wait_for(started)
    hdfs.kill("datanode")
    may_continue.touch()
    driver.wait_for(over)
    hdfs.heal()
    mended.touch()
    # Each thing that is left to write waits for the store on its own.
    said = driver.end(limit_s=300)
    assert said["error"] is None
    assert list(said["losses"]) == [str(step) for step in range(1, 7)]
    intact = [["step_00000002", "step_00000006"], "step_00000006"]
    assert driver.call("hdfs_trainings:checkpoints", folder) == intact
    # A resume removes the remains of the broken save.
    driver.call("hdfs_trainings:sweep", folder)
    assert not [name for name in seen_by_another_client(folder) if "writing" in name]


def test_plscs_scripts_upload_and_download_models(
    hdfs, driver, folder, tmp_path, seen_by_another_client
):
    directory = folder.removeprefix(hdfs.uri)
    up, down = tmp_path / "up", tmp_path / "down"

    def run(name, place):
        arguments = (name, hdfs.uri, directory, str(place))
        return driver.call("hdfs_trainings:plsc_script", *arguments)

    first, second = run("UPLOAD", up), run("DOWNLOAD", down)
    manifest = "saved_model/0/manifest.json"
    content = (up / manifest).read_bytes()
    assert (down / manifest).read_bytes() == content
    seen = seen_by_another_client(folder)
    assert [len(content), blake3(content).hexdigest()] in seen.values()
    # It starts from the weights of the first, and saves in another folder.
    assert (first["steps"], second["steps"]) == (2, 2)
    assert second["loss"] < first["loss"]
    assert (down / "output/0/manifest.json").is_file()
    log = driver.log.read_text()
    assert "Hadoop's user is trainer, from HADOOP_USER_NAME" in log
    assert "The password of fs_ugi is not sent" in log and "passwd" not in log
    for path in (*up.rglob("*"), *down.rglob("*")):
        assert path.is_dir() or b"passwd" not in path.read_bytes()
