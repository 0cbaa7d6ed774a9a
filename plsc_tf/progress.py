"""Progress of long work: a line that a terminal redraws, elsewhere lines of the log."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TextIO

from absl import logging

BAR = 20
# Seconds between two redraws on a terminal.
REDRAW_S = 0.5


class ProgressLine:
    """Redrawn in place on a terminal, with a bar; elsewhere a line of the log.

    Args:
        total: of the work, for the bar; None: no bar.
        stream: None: stderr.
    """

    def __init__(self, total: int | None = None, stream: TextIO | None = None):
        self._total, self._stream = total, stream
        self._open = False
        self._drawn = 0.0

    @property
    def on_terminal(self) -> bool:
        """Whether the stream is a terminal."""
        return self._to().isatty()

    def tell(self, done: int, text: str) -> None:
        """Shows a line that is due."""
        if self.on_terminal:
            self.redraw(done, text)
        else:
            logging.info("%s", text)

    def wants_more(self, now: float) -> bool:
        """Whether a terminal's line is old; `now` as of `time.monotonic`."""
        return now - self._drawn >= REDRAW_S and self.on_terminal

    def redraw(self, done: int, text: str) -> None:
        """Draws over the previous line, cut to the terminal's width."""
        width, bar = shutil.get_terminal_size().columns, ""
        if self._total:
            marks = min(round(BAR * done / self._total), BAR)
            bar = f"[{'=' * marks:<{BAR}}] "
        self._to().write(f"\r\x1b[K{f'{bar}{text}'[: max(width - 1, BAR)]}")
        self._to().flush()
        self._open, self._drawn = True, time.monotonic()

    def end(self) -> None:
        """Ends the line of a terminal."""
        if self._open:
            self._to().write("\n")
            self._open = False

    def _to(self):
        return self._stream or sys.stderr


class Progress:
    """Counts work, and shows amount, share, rate and remaining time.

    Any thread may count.

    Args:
        doing: the work in a few words.
        total: in bytes or records; None if unknown.
        unit: "bytes", or the things that are counted: "records", "images".
        log_every_s: seconds between two lines of a log.
    """

    def __init__(
        self, doing: str, total: int | None, unit: str, log_every_s: float = 10.0
    ):
        self._doing, self._total, self._unit = doing, total, unit
        self._shown = ProgressLine()
        self._every_s = REDRAW_S if self._shown.on_terminal else log_every_s
        self._begun = self._last = time.monotonic()
        self._done = self._before = 0
        self._lock = threading.Lock()

    def resumed(self, done: int) -> None:
        """Adds the work of an earlier process, which the rate leaves out."""
        self._done += done
        self._before += done

    def add(self, done: int, note: str = "") -> None:
        """Counts work, and shows a line when it is time."""
        with self._lock:
            self._done += done
            self._report(self._done / self._total if self._total else 0, note)

    def at(self, done: int, share: float) -> None:
        """Sets the amount that is done, and its share of the whole."""
        with self._lock:
            self._done = done
            self._report(share)

    def close(self) -> None:
        """Ends the line of a terminal."""
        self._shown.end()

    def _report(self, share, note=""):
        """Shows a line when it is time."""
        now = time.monotonic()
        if now - self._last < self._every_s:
            return
        self._last = now
        rate = (self._done - self._before) / max(now - self._begun, 1e-9)
        text = f"{self._doing}: {self._amount(self._done)}"
        if self._total:
            text = text.removesuffix(f" {self._unit}")
            text += f" of {self._amount(self._total)}"
        if share:
            text += f" ({share:.0%})"
        parts = [text, f"{self._amount(rate)}/s"]
        if share and rate:
            parts.append(f"ETA {format_seconds(self._done * (1 / share - 1) / rate)}")
        self._shown.tell(0, ", ".join(parts + [note] * bool(note)))

    def _amount(self, number):
        if self._unit == "bytes":
            return f"{number / 1e6:,.1f} MB"
        return f"{number:,.0f} {self._unit}"


def format_seconds(seconds: float) -> str:
    """`1:02:03` or `2:03`; negative times are 0."""
    minutes, seconds = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"
