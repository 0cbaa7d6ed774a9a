"""Two hosts, each with an address and a network of its own, train as one."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from tests.cluster.test_cluster_training import one_error
from tests.cluster.two_hosts_driver import JOIN_S, SILENCE_S

ROOT = pathlib.Path(__file__).parents[2]
LOST = 76
# How long a process may take that hangs in a collective, and how long after its time
# the chief still waits to tell latecomers.
GRACE_S, DECISION_S = 10, 5
# For the rest, on a machine that has much else to do.
SLOW_S = 30


def scenarios(folder, *names):
    """What came of scenarios of `two_hosts_driver`, by name."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.two_hosts_driver", str(folder), *names],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    if "not_permitted" in found:
        message = f"no network namespaces here: {found['not_permitted']}"
        if os.environ.get("PLSC_TF_REQUIRE_NETNS"):
            pytest.fail(message)
        pytest.skip(message)
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    names = ["one_process", "unbroken", "no_such_worker", "no_such_chief"]
    names += ["not_its_address", "no_cable", "black_hole", "pulled_restarted"]
    return scenarios(tmp_path_factory.mktemp("hosts"), *names)


@pytest.fixture(scope="module")
def found_slowly(tmp_path_factory):
    names = ["one_process", "launched", "pulled", "misdirected"]
    return scenarios(tmp_path_factory.mktemp("hosts"), *names)


def check_curve(found, name):
    """Every loss, also of a step that came twice, is that of one process."""
    expected = dict(found["one_process"]["losses"])
    steps = [step for step, _ in found[name]["losses"]]
    assert set(steps) == set(expected) == set(range(1, 61))
    np.testing.assert_allclose(
        [loss for _, loss in found[name]["losses"]],
        [expected[step] for step in steps],
        rtol=1e-5,
    )


def first_attempts(outcome):
    """What the workers wrote before they were started again."""
    return [
        re.split("^==== .*, attempt 2", log, flags=re.M)[0] for log in outcome["logs"]
    ]


def check_each_lost_the_other(outcome):
    for index, log in enumerate(first_attempts(outcome)):
        other = rf"Worker {1 - index} \(10\.77\.0\.{2 - index}:6170\)"
        errors = re.findall(r"(?:ERROR|plsc_tf: error:) (Worker .*)", log)
        assert len(errors) == 1, log
        assert re.match(
            rf"{other}(, the chief,)? was silent for {SILENCE_S} s \(stopped, or its "
            r"machine is gone\)",
            errors[0],
        )
    assert outcome["noticed_s"] < SILENCE_S + GRACE_S + SLOW_S


def test_two_hosts_are_two_replicas(found):
    assert found["unbroken"]["statuses"] == [0, 0]
    check_curve(found, "unbroken")
    for index, log in enumerate(found["unbroken"]["logs"]):
        assert f"Worker {index} of 2 (10.77.0.{index + 1}:6170)" in log


def test_a_pulled_cable_ends_both_and_the_launchers_go_on(found):
    outcome = found["pulled_restarted"]
    check_each_lost_the_other(outcome)
    assert outcome["statuses"] == [0, 0]
    for launcher, log in zip(outcome["launchers"], outcome["logs"], strict=True):
        assert f"ended with status {LOST} (it ended because another worker" in launcher
        assert re.search(r"Resuming .*/run/\d+ at epoch", log)
    check_curve(found, "pulled_restarted")


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        (
            "no_such_worker",
            [
                r"Worker 1 \(10.77.0.9:6170\) did not come within 4 s",
                "which of cluster_node_ips=10.77.0.1,10.77.0.9 is this machine",
            ],
        ),
        (
            "no_such_chief",
            [
                "which of cluster_node_ips=10.77.0.9,10.77.0.2 is this machine",
                r"cannot reach Worker 0 \(10.77.0.9:6170\) within 4 s",
            ],
        ),
        (
            "not_its_address",
            [r"Worker 1 \(10.77.0.9:6170\) cannot listen there: this machine has no"]
            * 2,
        ),
        *(
            (
                name,
                [
                    r"Worker 1 \(10.77.0.2:6170\) did not come within 4 s",
                    r"cannot reach Worker 0 \(10.77.0.1:6170\) within 4 s",
                ],
            )
            for name in ("no_cable", "black_hole")
        ),
    ],
)
def test_hosts_that_do_not_meet_say_why_in_time(found, name, messages):
    outcome = found[name]
    assert outcome["statuses"] == [1, 1]
    for log, message in zip(outcome["logs"], messages, strict=True):
        assert re.search(message, one_error(log))
    assert outcome["seconds"] < JOIN_S + DECISION_S + SLOW_S


@pytest.mark.slow
def test_launchers_on_two_hosts(found_slowly):
    assert found_slowly["launched"]["statuses"] == [0, 0]
    check_curve(found_slowly, "launched")


@pytest.mark.slow
def test_a_pulled_cable_ends_both_launchers(found_slowly):
    outcome = found_slowly["pulled"]
    check_each_lost_the_other(outcome)
    assert outcome["statuses"] == [LOST, LOST]


@pytest.mark.slow
def test_a_way_that_is_open_in_one_direction_only(found_slowly):
    outcome = found_slowly["misdirected"]
    assert outcome["statuses"] == [0, 0]
    assert outcome["noticed_s"] < SILENCE_S + GRACE_S + SLOW_S
    check_curve(found_slowly, "misdirected")
