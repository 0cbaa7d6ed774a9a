"""How far work is: amounts, share, rate and the time that is left."""

import logging

import pytest

from plsc_tf import progress
from plsc_tf.progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """The seconds that have passed, in a list of one number."""
    passed = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: passed[0])
    return passed


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, logger="absl")
    return lambda: caplog.messages


def test_amounts_of_a_known_total(clock, lines):
    told = Progress("copying", 4_000_000, "bytes")
    told.resumed(1_000_000)
    clock[0] = 9.0
    told.add(500_000)
    assert not lines()
    clock[0] = 10.0
    told.add(500_000, "7 records")
    # A million bytes in ten seconds, two millions to go.
    expected = "copying: 2.0 MB of 4.0 MB (50%), 0.1 MB/s, ETA 0:00:20, 7 records"
    assert lines() == [expected]


def test_a_share_instead_of_a_total(clock, lines):
    told = Progress("checking", None, "pictures", log_every_s=1.0)
    clock[0] = 100.0
    told.at(2_000, 0.25)
    assert lines() == ["checking: 2,000 pictures (25%), 20 pictures/s, ETA 0:05:00"]
    clock[0] = 101.0
    told.at(2_020, 0.0)
    assert lines()[1] == "checking: 2,020 pictures, 20 pictures/s"
