"""The line of progress on a terminal and elsewhere."""

import io
import logging

from plsc_tf.reporting.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_line_is_redrawn_within_its_width(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    terminal = Terminal()
    line = ProgressLine(20, terminal)
    line.tell(10, "step 10/20  loss 1.0")
    line.tell(20, "x" * 100)
    line.end()
    first, second = terminal.getvalue().split("\r\x1b[K")[1:]
    assert first == "[==========          ] step 10/20  loss 1.0"
    assert second == f"[{'=' * 20}] {'x' * 26}\n"  # 49 characters


def test_elsewhere_each_line_stays(caplog):
    file = io.StringIO()
    with caplog.at_level(logging.INFO, logger="absl"):
        line = ProgressLine(20, file)
        line.tell(10, "step 10/20")
        line.end()
    assert [record.message for record in caplog.records] == ["step 10/20"]
    assert file.getvalue() == "" and not line.wants_more(1e12)
