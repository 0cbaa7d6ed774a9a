"""Trainings survive their workers, and the benchmark would see it if they did not."""

import functools
import json
import pathlib
import shutil
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from benchmarks import kill_moments, kill_worker, lost_worker_run, outcomes
from benchmarks.lost_worker_run import LostWorkerRun, wrong_end
from benchmarks.processes import Training

ROOT = pathlib.Path(__file__).parent.parent
# A worker like that of a run: six steps, checkpoints after the third and the sixth. The
# first attempt waits after the third for the loss of another worker.
WORKER = """
import json, os, pathlib, shutil, sys, time

run_dir, how = pathlib.Path(sys.argv[1]), sys.argv[2]
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
again = pathlib.Path(f"attempted-{index}").exists()
pathlib.Path(f"attempted-{index}").touch()
pid = pathlib.Path(f"pid-{index}")
pid.with_suffix(".new").write_text(str(os.getpid()))
pid.with_suffix(".new").rename(pid)
others = [i for i in range(3) if i != index]
if not again:
    while not all(pathlib.Path(f"pid-{i}").exists() for i in others):
        time.sleep(0.01)
pids = {i: pathlib.Path(f"pid-{i}").read_text() for i in others} if not again else {}

def lost(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in "TtZX"

if index == 0:
    run_dir.mkdir(exist_ok=True)
    newest = max([0, *(int(p.name[5:]) for p in run_dir.glob("step_*"))])
    for step in range(newest + 1, 7 if again else 4):
        with open(run_dir / "losses.txt", "a") as file:
            loss = step + (step == 5 and how == "another loss")
            file.write(f"{step} {float(loss).hex()}\\n")
        if step % 3 == 0:
            name = "other" if how == "another array" and again else "like"
            shutil.copytree(f"{name}-{step}", f"new-{step}")
            os.rename(f"new-{step}", run_dir / f"step_{step}")
if again:
    sys.exit(0)
while not (gone := [i for i in others if lost(pids[i])]):
    time.sleep(0.01)
pathlib.Path(f"knows-{index}").touch()
third = 3 - index - gone[0]
while not pathlib.Path(f"knows-{third}").exists():
    time.sleep(0.01)
if how == "late":
    time.sleep(2)
named = third if how == "names another" else gone[0]
if how != "silent":
    print(f"plsc_tf: error: Worker {named} (here) has gone", flush=True)
sys.exit(76)
"""


@pytest.mark.slow
def test_trainings_end_as_if_no_worker_had_been_lost(tmp_path):
    options = ["--runs=1", "--num_workers=2", "--epochs=1", "--stop_share=0"]
    options += ["--steps_per_epoch=8", f"--work_dir={tmp_path}/w"]
    command = [sys.executable, "-m", "benchmarks.kill_worker", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    expected = {"runs": 1, "ended_in_time": 1, "finished_exact": 1, "resumed": 1}
    assert {name: figures[name] for name in expected} == expected
    assert figures["kills"] == figures["of_the_chief"] + figures["of_others"] == 1
    assert 0 < figures["longest_s_after_kill"] <= 60
    assert "1 of 1 runs, 1 exact" in done.stderr and "runs/min" in done.stderr
    assert not (tmp_path / "w").exists()


def make_checkpoint(path, step, value):
    path.mkdir()
    with h5py.File(path / "b.h5", "w") as file:
        file["dense"] = np.float32([value])
    np.savez(path / "t.npz", momentum=np.float32([2.0]))
    state = dict.fromkeys(outcomes.STATE, 0)
    manifest = {
        "state": {**state, "global_step": step, "epoch": 0},
        "backbone": {"file": "b.h5"},
        "training": {"file": "t.npz"},
        "arrays": {},
    }
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def lose(tmp_path, monkeypatch):
    """Takes a run of the workers above to its end, in which they behave somehow."""
    runs = []
    monkeypatch.setitem(kill_moments.SHARES, "time", 100)
    for name in ("step", "saving", "saved", "end"):
        monkeypatch.setitem(kill_moments.SHARES, name, 0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "tmp").mkdir()
    for step in (3, 6):
        make_checkpoint(tmp_path / f"like-{step}", step, 1.0)
        make_checkpoint(tmp_path / f"other-{step}", step, 1.5)
    unbroken = tmp_path / "unbroken"
    unbroken.mkdir()
    losses = [f"{step} {float(step).hex()}\n" for step in range(1, 7)]
    (unbroken / "losses.txt").write_text("".join(losses))
    shutil.copytree(tmp_path / "like-6", unbroken / "step_6")
    reference = outcomes.Outcome.read(unbroken)
    reference.seconds = 0.2

    def start(run_dir, how):
        launching = ["--num_workers=3", "--max_restarts=1", f"--log_dir={run_dir}.logs"]
        words = ["--", "worker.py", run_dir, how]
        return Training(
            [*launching, *words], run_dir, fork=False, module="plsc_tf.launch"
        )

    def take(how, seed=0, stop=False):
        begin = functools.partial(start, how=how)
        run_dir = str(tmp_path / "run")
        runs.append(LostWorkerRun(begin, run_dir, reference, seed, size=3, stop=stop))
        runs[0].start()
        while not runs[0].poll():
            time.sleep(0.01)
        return runs[0]

    yield take
    for run in runs:
        run.training.kill()


slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("seed", "stop"), [(0, True), *(pytest.param(n, False, marks=slow) for n in (1, 2))]
)
def test_a_run_that_goes_well_leaves_nothing(lose, tmp_path, seed, stop):
    run = lose("well", seed=seed, stop=stop)
    assert run.victim == int(np.random.default_rng(seed).integers(3))
    assert run.well and run.in_time and run.exact, run.told
    assert 0 < run.seconds < 10
    assert not list(tmp_path.glob("run*"))


@pytest.mark.parametrize(
    ("how", "exact", "problem"),
    [
        ("names another", True, "does not name worker"),
        pytest.param("silent", True, "does not name worker", marks=slow),
        ("late", True, "still runs after 0.5 s"),
        ("another loss", False, "NOT EXACT: differs in the loss of step 5"),
        pytest.param("another array", False, "differs in the array", marks=slow),
    ],
)
def test_a_run_that_does_not_go_well_is_noticed(
    lose, tmp_path, monkeypatch, how, exact, problem
):
    if how == "late":
        monkeypatch.setattr(lost_worker_run, "LIMIT_S", 0.5)
    run = lose(how)
    assert (run.exact, run.in_time, run.well) == (exact, not exact, False)
    assert problem in str(run.told)
    assert (tmp_path / "run").exists()


GOOD = "==== worker 0 of 3 (a:1), attempt 1, now ====\nplsc_tf: error: Worker 2 (c:3) x"


@pytest.mark.parametrize(
    ("text", "status", "complete", "problem"),
    [
        (GOOD, 76, False, ""),
        (GOOD, None, True, ""),
        (GOOD.replace("plsc_tf: error:", "21:00:00 ERROR"), 75, False, ""),
        (GOOD + "\nplsc_tf: error: Worker 1 (b:2) y", 76, False, "does not name"),
        (GOOD.replace("plsc_tf: error: ", ""), 76, False, "does not name"),
        (GOOD, -9, False, "did not end by itself"),
        ("nothing", 0, True, ""),
        ("nothing", 1, True, "does not name"),
        (f"worker 0 of 3 (a:1), attempt 2, now ====\n{GOOD}", 76, False, "does not"),
    ],
)
def test_the_end_of_a_worker_is_judged_by_its_log(text, status, complete, problem):
    found = wrong_end(text, status, 2, complete)
    assert problem in found and bool(found) == bool(problem)


def test_stops_are_spread_over_the_runs():
    case = kill_worker.LossCase(stop_share=0.2)
    assert [i for i in range(20) if case.stops(i)] == [4, 9, 14, 19]
    assert not any(kill_worker.LossCase(stop_share=0).stops(i) for i in range(20))
    assert all(kill_worker.LossCase(stop_share=1).stops(i) for i in range(20))
