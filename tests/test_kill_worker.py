"""Trainings survive their workers, and the benchmark judges how workers end."""

import json

import pytest

from benchmarks.lost_worker_run import wrong_end
from tests import programs


@pytest.mark.slow
def test_trainings_end_as_if_no_worker_had_been_lost(tmp_path):
    options = ["--runs=1", "--num_workers=2", "--epochs=1", "--stop_share=0"]
    options += ["--steps_per_epoch=8", f"--work_dir={tmp_path}/w"]
    done = programs.run("-m", "benchmarks.kill_worker", *options)
    figures = json.loads(done.out.splitlines()[-1])
    expected = {"runs": 1, "ended_in_time": 1, "finished_exact": 1, "resumed": 1}
    assert {name: figures[name] for name in expected} == expected
    assert figures["kills"] == figures["of_the_chief"] + figures["of_others"] == 1
    assert 0 < figures["longest_s_after_kill"] <= 60
    assert "1 of 1 runs, 1 exact" in done.err and "runs/min" in done.err
    assert not (tmp_path / "w").exists()


GOOD = "==== worker 0 of 3 (a:1), attempt 1, now ====\nplsc_tf: error: Worker 2 (c:3) x"


@pytest.mark.parametrize(
    ("text", "status", "complete", "problem"),
    [
        (GOOD, 76, False, ""),
        (GOOD.replace("plsc_tf: error:", "21:00:00 ERROR"), 75, False, ""),
        (GOOD + "\nplsc_tf: error: Worker 1 (b:2) y", 76, False, "does not name"),
        (GOOD.replace("plsc_tf: error: ", ""), 76, False, "does not name"),
        (GOOD, -9, False, "did not end by itself"),
        ("nothing", 0, True, ""),
        (f"worker 0 of 3 (a:1), attempt 2, now ====\n{GOOD}", 76, False, "does not"),
    ],
)
def test_the_end_of_a_worker_is_judged_by_its_log(text, status, complete, problem):
    found = wrong_end(text, status, 2, complete)
    assert problem in found and bool(found) == bool(problem)
