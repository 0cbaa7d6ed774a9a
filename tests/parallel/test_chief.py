"""What the chief decides of what it hears: who was lost, and why."""

import math

import pytest

from plsc_tf.parallel.chief import Chief


@pytest.fixture
def announced():
    return []


@pytest.fixture
def chief(announced):
    return Chief(["W0", "W1", "W2"], 30.0, announced.append)


def verdicts(announced):
    return [message for message in announced if message["kind"] == "lost"]


def report(text, status=76):
    return {"kind": "fail", "text": text, "status": status}


def test_one_that_vanishes_is_the_cause_of_failures_just_before(chief, announced):
    chief.receive(2, report("connection reset by peer"))
    chief.receive(0, report("collective aborted"))
    chief.closed(1)
    chief.check(5)
    (verdict,) = verdicts(announced)
    assert verdict["index"] == 1 and verdict["text"].startswith("W1 disconnected")


def test_of_failures_the_first_counts(chief, announced):
    chief.receive(2, report("the disk is full", 74))
    chief.closed(2)
    chief.receive(1, report("collective aborted"))
    chief.check(1)
    assert not verdicts(announced)
    chief.check(0.1)
    expected = {"index": 2, "text": "W2 failed: the disk is full", "status": 74}
    assert verdicts(announced) == [{"kind": "lost", **expected}]


def test_one_that_has_left_is_neither_silent_nor_gone(chief, announced):
    chief.receive(1, {"kind": "bye"})
    chief.closed(1)
    chief.check(29)
    assert not verdicts(announced)
    chief.receive(0, {"kind": "bye"})
    chief.receive(2, {"kind": "bye"})
    assert announced[-1] == {"kind": "end"}
    chief.check(100)
    assert not verdicts(announced)


@pytest.mark.parametrize("leaves_first", [True, False])
def test_nobody_waits_for_one_that_has_left(chief, announced, leaves_first):
    value = {"kind": "value", "name": "loss", "value": 1, "timeout_s": math.inf}
    messages = [(0, value), (1, {"kind": "bye"})]
    for index, message in messages[::-1] if leaves_first else messages:
        chief.receive(index, message)
    chief.check(0.1)
    (verdict,) = verdicts(announced)
    assert verdict["index"] == 1
    assert "W1 has left, while others wait for its value of 'loss'" in verdict["text"]


def test_one_whose_value_is_late_is_named(chief, announced):
    for index in (0, 2):
        value = {"kind": "value", "name": "loss", "value": 1, "timeout_s": 9}
        chief.receive(index, value)
    chief.check(8)
    assert not verdicts(announced)
    chief.check(1.1)
    text = verdicts(announced)[0]["text"]
    assert text.startswith("W1 did not send a value for 'loss' within 9 s. It was")


@pytest.mark.parametrize(
    ("beats", "expected"),
    [
        (
            [(0, "step 8", 20.1), (1, "step 8", 20.4), (2, "step 8", 20.2)],
            "All workers are in: step 8 (for 20 s). A collective or the computation "
            "itself hangs.",
        ),
        (  # the majority may be the one that is behind
            [(0, "reading", 22.0), (1, "reading", 21.0), (2, "step 8", 20.8)],
            "W0 is still in: reading (for 22 s; last heard of 2 s ago); W1 is still "
            "in: reading (for 21 s; last heard of 2 s ago); the others wait in: step "
            "8.",
        ),
        (
            [(1, "step 8", 20.4), None, (0, "step 8", 20.1), (2, "step 8", 20.2)],
            "W1 is still in: step 8 (for 20 s; last heard of 14 s ago); the others "
            "wait in: step 8.",
        ),
    ],
)
def test_a_stall_names_those_for_whom_others_wait(chief, announced, beats, expected):
    for beat in beats:
        if beat is None:
            chief.check(12)
        else:
            index, activity, since = beat
            chief.receive(index, {"kind": "beat", "activity": activity, "since": since})
    chief.receive(0, report("no progress for 20 s in: step 8", 75))
    chief.check(2)
    text = f"W0 failed: no progress for 20 s in: step 8. {expected}"
    assert verdicts(announced)[0]["text"] == text
