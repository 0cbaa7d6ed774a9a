"""Progress: amounts, share, rate and remaining time; on a terminal and elsewhere."""

import io

import pytest

from plsc_tf import progress
from plsc_tf.progress import Progress, ProgressLine


@pytest.fixture
def clock(monkeypatch):
    """The seconds that have passed, in a list of one number."""
    passed = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: passed[0])
    return passed


def test_amounts_of_a_known_total(clock, caplog):
    told = Progress("copy", 4_000_000, "bytes", done=1_000_000)
    clock[0] = 9.0
    told.add(500_000)
    assert not caplog.messages
    clock[0] = 10.0
    told.add(500_000)
    # A million bytes in ten seconds, two millions to go.
    assert caplog.messages == ["copy: 2.0 MB of 4.0 MB (50%), 0.1 MB/s, ETA 0:00:20"]


def test_an_unknown_total(clock, caplog):
    told = Progress("checking", None, "pictures")
    clock[0] = 100.0
    told.add(2_000)
    assert caplog.messages == ["checking: 2,000 pictures, 20 pictures/s"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_line_is_redrawn_within_its_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    line = ProgressLine(20)
    line.show(10, lambda: "step 10/20  loss 1.0")
    line.show(20, lambda: "x" * 100)
    line.show(20, lambda: "too soon", due=False)
    line.end()
    first, second = terminal.getvalue().split("\r\x1b[K")[1:]
    assert first == "[==========          ] step 10/20  loss 1.0"
    assert second == f"[{'=' * 20}] {'x' * 26}\n"  # 49 characters


def test_elsewhere_each_line_stays(caplog, monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    line = ProgressLine(20)
    line.show(10, lambda: "step 10/20")
    line.show(11, lambda: "step 11/20", due=False)
    line.end()
    assert [record.message for record in caplog.records] == ["step 10/20"]
    assert file.getvalue() == ""
