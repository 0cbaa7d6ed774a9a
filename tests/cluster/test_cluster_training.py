"""Workers that are processes of their own train as one, and end as one."""

import json
import re

import numpy as np
import pytest

from tests import programs

LOST = 76
SIGTERM = 143
STEPS = [str(step) for step in range(1, 16)]


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    """What came of every scenario of `cluster_driver`, by name."""
    folder = tmp_path_factory.mktemp("cluster")
    done = programs.run("-m", "tests.cluster.cluster_driver", folder)
    return json.loads(done.out.splitlines()[-1])


def curve(found):
    return [found["losses"][step] for step in STEPS]


def one_error(log):
    """The message that a worker ended with."""
    found = re.findall(r"^plsc_tf: error: (.*?)^\(PLSC", log, re.DOTALL | re.MULTILINE)
    assert len(found) == 1, log
    return found[0]


def test_two_workers_are_two_replicas_bit_for_bit(scenarios):
    found = scenarios["unbroken"]
    assert found["workers"]["statuses"] == [0, 0]
    # Nobody from outside reaches TensorFlow's servers (127.0.0.1 in IPv6), nor the port
    # where workers join (in IPv4), which may be open for milliseconds only.
    servers, *joining = found["workers"]["listening"]
    assert servers == "0000000000000000FFFF00000100007F"
    assert joining in ([], ["0100007F"])
    assert curve(found["workers"]) == curve(found["two"])
    np.testing.assert_allclose(curve(found["two"]), curve(found["one"]), rtol=1e-5)


def test_the_chief_tells_the_results_and_the_others_are_silent(scenarios):
    found = scenarios["unbroken"]
    results = found["workers"]["results"]
    assert results["verification"] == found["two"]["results"]["verification"]
    assert "mock" in results["verification"]
    told = ["verification accuracy" in log for log in found["workers"]["logs"]]
    assert told == [True, False]


def test_a_run_goes_on_on_other_numbers_of_workers(scenarios):
    found = scenarios["elastic"]
    assert found["statuses"] == [0] * 4
    expected = curve(scenarios["unbroken"]["one"])
    np.testing.assert_allclose(curve(found), expected, rtol=1e-5)
    told = ["loss.png", "losses.txt", "metrics.csv", "metrics.jsonl", "report.html"]
    assert found["names"] == ["0", "1", "2", "flags.cfg", *told, "results.json"]


def test_sigterm_to_one_worker_saves_what_all_have_done(scenarios):
    found = scenarios["terminated"]
    assert found["statuses"] == [LOST, SIGTERM]
    assert "Another worker was asked to end" in one_error(found["logs"][0])
    assert f"step_{found['steps_before']:08d} is saved" in found["logs"][0]
    assert 3 <= found["steps_before"] < 15 and found["resumed"] == [0, 0]
    assert curve(found) == curve(scenarios["unbroken"]["workers"])


def test_a_bad_picture_of_one_worker_ends_all_after_the_same_step(scenarios):
    found = scenarios["bad_picture"]
    assert found["statuses"] == [LOST, 1]
    for log, teller in zip(found["logs"], ("Worker 1: ", ""), strict=True):
        message = one_error(log)
        assert message.startswith(f"{teller}The image cannot be read: ")
        assert found["damaged"] in message
    assert f"step_{found['steps_before']:08d} is saved" in found["logs"][0]
    assert found["resumed"] == [0, 0]
    assert found["losses"] == found["expected"]


def test_a_step_that_is_not_finite_is_one_finding_of_all(scenarios):
    found = scenarios["not_finite"]
    assert found["statuses"] == [1, 1]
    messages = [one_error(log) for log in found["logs"]]
    assert messages[0] == messages[1]
    assert "The first tensor that is not finite in step 2" in messages[0]
    assert found["names"] == ["step_00000002.json", "step_00000002.npz"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unequal_flags", "flags.learning_rate: '1.0' on worker 0; '2.0' on worker 1"),
        ("unequal_data", r"data: 'examples: 46, .* on worker 0; 'examples: 45, "),
        ("unshared_folder", "Worker 1 does not see the files of worker 0"),
    ],
)
def test_what_does_not_fit_is_said_before_training(scenarios, name, words):
    found = scenarios[name]
    assert all(status in (1, LOST) for status in found["statuses"])
    assert 1 in found["statuses"]
    for log in found["logs"]:
        assert re.search(words, one_error(log))
        assert "Saved" not in log
