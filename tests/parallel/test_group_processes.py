"""Groups of real processes: what all others say and do when one of them is lost."""

import contextlib
import json
import pathlib
import signal
import subprocess

import pytest

from plsc_tf.parallel.addresses import free_addresses
from tests import programs

WORKER = pathlib.Path(__file__).with_name("group_worker.py")
# Far more than anything here takes: nothing may hang.
MOST_S = 60
LOST, NOT_JOINED = 76, 3


@pytest.fixture
def addresses():
    return [*free_addresses(3)]


@pytest.fixture
def start():
    """Starts a worker; whatever happens, none stays behind."""
    with contextlib.ExitStack() as stack:

        def start(addresses, index, role="meet", **options):
            given = {"addresses": addresses, "index": index, "role": role}
            given["options"] = {"timeout_s": 30, "grace_s": 1, **options}
            process = programs.start(WORKER, json.dumps(given))
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield start


def start_all(start, addresses, roles, **options):
    """Starts a worker for each role; returns them when all are ready."""
    workers = [start(addresses, i, role, **options) for i, role in enumerate(roles)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
    return workers


def outcome(worker, status):
    """Returns (what it said, its log) once it has ended with a status."""
    done = programs.end(worker, MOST_S)
    assert done.status == status, done.err
    return done.out, done.err


@pytest.mark.parametrize("victim", [0, 1])
def test_all_others_end_when_one_is_killed(start, addresses, victim):
    # One of them hangs, as in a collective; the other waits for values.
    roles = ["hang", "wait"]
    roles.insert(victim, "hang")
    workers = start_all(start, addresses, roles)
    workers[victim].kill()
    hanging, waiting = (w for i, w in enumerate(workers) if i != victim)
    name = f"Worker {victim} ({addresses[victim]})"
    message = f"{name} disconnected (its connection was closed)."
    said, _ = outcome(waiting, LOST)
    activity = "It was last in: " if victim else "This worker was in: "
    assert said.startswith(f"WorkerLostError: {message} {activity}"), said
    _, log = outcome(hanging, LOST)
    assert message in log
    # Where it hung.
    assert "group_worker.py" in log and "in hang" in log


@pytest.mark.parametrize("victim", [0, 2])
def test_one_that_is_stopped_is_lost_and_ends_when_it_goes_on(start, addresses, victim):
    roles = ["wait", "wait"]
    roles.insert(victim, "hang")
    workers = start_all(start, addresses, roles, silence_s=2)
    workers[victim].send_signal(signal.SIGSTOP)
    message = (
        f"Worker {victim} ({addresses[victim]}) was silent for 2 s (suspended, or its "
        "machine is down)."
    )
    for i, worker in enumerate(workers):
        if i != victim:
            said, _ = outcome(worker, LOST)
            assert said.startswith(f"WorkerLostError: {message}"), said
            if victim:  # The chief, which tells them, has heard from all others.
                assert "; the others are in: step 7 on workers 0, 1." in said
    workers[victim].send_signal(signal.SIGCONT)
    _, log = outcome(workers[victim], LOST)
    assert f"The other workers consider this worker lost. {message}" in log


def test_a_short_stop_is_no_loss(start, addresses):
    chief, other = start_all(start, addresses[:2], ["hang", "hang"], silence_s=6)
    chief.send_signal(signal.SIGSTOP)
    with pytest.raises(subprocess.TimeoutExpired):
        other.communicate(timeout=1)
    chief.send_signal(signal.SIGCONT)
    with pytest.raises(subprocess.TimeoutExpired):
        other.communicate(timeout=2)
    assert chief.poll() is None


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_failure_is_told_in_its_own_words(start, addresses, culprit):
    roles = ["wait", "wait"]
    roles.insert(culprit, "fail")
    workers = start_all(start, addresses, roles)
    message = f"Worker {culprit} ({addresses[culprit]}) failed: the disk is full\n"
    assert outcome(workers.pop(culprit), 5)[0] == f"verdict: {message}"
    for worker in workers:
        assert outcome(worker, LOST)[0] == f"WorkerLostError: {message}"


def test_an_unreachable_chief_is_named(start, addresses):
    said, _ = outcome(start(addresses, 1, timeout_s=2), NOT_JOINED)
    assert (
        f"JoinError: Worker 1 ({addresses[1]}) could not reach "
        f"Worker 0 ({addresses[0]}) within 2 s: Connection refused." in said
    )
    assert "cluster_node_ips" in said and "firewall" in said


# An address kept for documentation, which no machine has, and a name that never is.
@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("192.0.2.1:6170", "the address is not this machine's"),
        ("worker.invalid:6170", "cannot resolve the name 'worker.invalid'"),
    ],
)
def test_a_wrong_address_is_told_to_all(start, addresses, wrong, problem):
    addresses[1] = wrong
    for worker in [start(addresses, index) for index in range(3)]:
        said, _ = outcome(worker, NOT_JOINED)
        assert f"JoinError: Worker 1 ({wrong})" in said and problem in said


def test_different_lists_are_told_to_all(start, addresses):
    other = [addresses[0], "127.0.0.1:1", addresses[2]]
    lists = [addresses, addresses, other]
    for worker in [start(lists[index], index) for index in range(3)]:
        said, _ = outcome(worker, NOT_JOINED)
        assert "JoinError: The workers have different lists of workers." in said
        told = f"Worker 2: {', '.join(other)}; the chief: {', '.join(addresses)}"
        assert told in said
        assert "cluster_node_ips" in said
