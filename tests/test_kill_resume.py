"""Trainings survive SIGKILL and lost workers; the benchmark would see otherwise."""

import dataclasses
import json

import pytest

from benchmarks import outcomes
from benchmarks.lost_worker_run import wrong_end
from benchmarks.outcomes import Outcome
from tests import programs
from tests.marks import slow


def benchmark(folder, *options):
    """Its figures and its log; it leaves nothing in the folder."""
    work_dir = f"--work_dir={folder}/w"
    done = programs.run("-m", "benchmarks.kill_resume", *options, work_dir)
    assert not (folder / "w").exists()
    return json.loads(done.out.splitlines()[-1]), done.err


@pytest.mark.parametrize("runs", [1, slow(6)])
def test_killed_trainings_end_as_if_nothing_had_happened(tmp_path, runs):
    figures, log = benchmark(tmp_path, f"--runs={runs}", "--most_kills=1")
    for name in ("runs", "resumed", "exact", "kills"):
        assert figures[name] == runs, name
    assert 0 <= figures["kills_in_saves"] <= runs and figures["seconds"] > 0
    assert f"{runs} of {runs} runs, {runs} exact" in log and "runs/min" in log


@pytest.mark.slow
def test_trainings_end_as_if_no_worker_had_been_lost(tmp_path):
    figures, _ = benchmark(tmp_path, "--runs=1", "--num_workers=2")
    for name in ("runs", "ended_in_time", "exact", "resumed", "kills"):
        assert figures[name] == 1, name
    assert figures["stops"] == 0 and 0 < figures["longest_s"] <= 60


GOOD = "==== worker 0 of 3 (a:1), attempt 1, now ====\nplsc_tf: error: Worker 2 (c:3) x"


@pytest.mark.parametrize(
    ("text", "complete", "problem"),
    [
        (GOOD, False, ""),
        (GOOD.replace("plsc_tf: error:", "21:00:00 ERROR"), False, ""),
        (GOOD + "\nplsc_tf: error: Worker 1 (b:2) y", False, "does not name"),
        (GOOD.replace("plsc_tf: error: ", ""), False, "does not name"),
        ("nothing", True, ""),
        (f"worker 0 of 3 (a:1), attempt 2, now ====\n{GOOD}", False, "does not"),
    ],
)
def test_the_end_of_a_worker_is_judged_by_its_log(text, complete, problem):
    found = wrong_end(text, 2, complete)
    assert problem in found and bool(found) == bool(problem)


def make_checkpoint(run_dir, name, step, content=b"1"):
    path = run_dir / name
    (path / "rows").mkdir(parents=True)
    (path / "rows" / "w.npy").write_bytes(content)
    state = dict.fromkeys(outcomes.STATE, 0)
    manifest = {"state": {**state, "global_step": step, "epoch": 0}}
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_every_difference_of_the_newest_whole_checkpoints_is_named(tmp_path):
    make_checkpoint(tmp_path, "step_00000002", 2, content=b"5")
    make_checkpoint(tmp_path, "0", 3)
    make_checkpoint(tmp_path, "step_00000009.writing-ab", 9)
    (tmp_path / "losses.txt").write_text("1 0x1p+0\n2 0x1p+1\n2 0x1p+1\n3 0x1p+2\n")
    outcome = Outcome.read(tmp_path)
    assert outcome.losses == {1: {"0x1p+0"}, 2: {"0x1p+1"}, 3: {"0x1p+2"}}
    assert outcome.files == {"rows/w.npy": b"1"}
    assert outcome.state["global_step"] == 3
    twice = {**outcome.losses, 2: {"0x1p+1", "0x1.8p+1"}}
    for changed, problem in (
        ({"seconds": 9.0}, ""),
        ({"losses": twice}, "the loss of step 2"),
        ({"state": {}}, "the state"),
        ({"files": {"rows/w.npy": b"0"}}, "the file rows/w.npy"),
    ):
        found = outcome.differs(dataclasses.replace(outcome, **changed))
        assert problem in found and bool(found) == bool(problem)
