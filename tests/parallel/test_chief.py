"""What the chief decides of what it hears: who was lost, and why."""

import math
import time

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
    chief.check(time.monotonic() + 5)
    (verdict,) = verdicts(announced)
    assert verdict["index"] == 1 and verdict["text"].startswith("W1 disconnected")


def test_of_failures_the_first_counts(chief, announced):
    chief.receive(2, report("the disk is full", 75))
    chief.closed(2)
    chief.receive(1, report("collective aborted"))
    chief.check(time.monotonic())
    assert not verdicts(announced)
    chief.check(time.monotonic() + 1.5)
    expected = {"index": 2, "text": "W2 failed: the disk is full", "status": 75}
    assert verdicts(announced) == [{"kind": "lost", **expected}]


def test_one_that_has_left_is_neither_silent_nor_gone(chief, announced):
    chief.receive(1, {"kind": "bye"})
    chief.closed(1)
    now = time.monotonic()
    chief.check(now + 29)
    assert not verdicts(announced)
    chief.receive(0, {"kind": "bye"})
    chief.receive(2, {"kind": "bye"})
    assert announced[-1] == {"kind": "end"}
    chief.check(now + 100)
    assert not verdicts(announced)


@pytest.mark.parametrize("leaves_first", [True, False])
def test_nobody_waits_for_one_that_has_left(chief, announced, leaves_first):
    value = {"kind": "value", "name": "loss", "value": 1, "timeout_s": math.inf}
    messages = [(0, value), (1, {"kind": "bye"})]
    for index, message in messages[::-1] if leaves_first else messages:
        chief.receive(index, message)
    chief.check(time.monotonic())
    (verdict,) = verdicts(announced)
    assert verdict["index"] == 1
    assert "W1 has left, while others wait for its value of 'loss'" in verdict["text"]


def test_one_whose_value_is_late_is_named(chief, announced):
    for index in (0, 2):
        value = {"kind": "value", "name": "loss", "value": 1, "timeout_s": 9}
        chief.receive(index, value)
    now = time.monotonic()
    chief.check(now + 8)
    assert not verdicts(announced)
    chief.check(now + 9.1)
    text = verdicts(announced)[0]["text"]
    assert text.startswith("W1 did not send a value for 'loss' within 9 s. It was")
