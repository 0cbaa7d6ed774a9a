"""How far long work is, how fast, and how long it will take."""

from __future__ import annotations

import sys
import threading
import time

from absl import logging


class Progress:
    """Shows a line that renews itself on a terminal, else a log line now and then.

    Any thread may tell of progress.

    Args:
        doing: the work in a few words.
        total: what it takes, in bytes or records; None where nobody knows.
        unit: "bytes", or what is counted: "records", "pictures".
        log_every_s: seconds between two lines of a log.
    """

    def __init__(
        self, doing: str, total: int | None, unit: str, log_every_s: float = 10.0
    ):
        self._doing, self._total, self._unit = doing, total, unit
        self._terminal = sys.stderr.isatty()
        self._every_s = 0.5 if self._terminal else log_every_s
        self._begun = self._last = time.monotonic()
        self._done = self._before = 0
        self._lock = threading.Lock()

    def resumed(self, done: int) -> None:
        """Tells what was done by an earlier process."""
        self._done += done
        self._before += done

    def add(self, done: int, note: str = "") -> None:
        """Counts what was done, and reports when it is time."""
        with self._lock:
            self._done += done
            share = self._done / self._total if self._total else 0
            self._report(share, note)

    def at(self, done: int, share: float) -> None:
        """Tells how much is done in all, and which share of the work that is."""
        with self._lock:
            self._done = done
            self._report(share)

    def close(self) -> None:
        """Ends the line of a terminal."""
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _report(self, share, note=""):
        now = time.monotonic()
        if now - self._last >= self._every_s:
            self._last = now
            self._show(self._line(now, share, note))

    def _line(self, now, share, note):
        made = self._done - self._before
        rate = made / max(now - self._begun, 1e-9)
        text = f"{self._doing}: {self._amount(self._done)}"
        if self._total:
            done = self._amount(self._done).removesuffix(f" {self._unit}")
            text = f"{self._doing}: {done} of {self._amount(self._total)}"
        if share:
            text += f" ({share:.0%})"
        parts = [text, f"{self._amount(rate)}/s"]
        if share and rate:
            parts.append(f"ETA {_clock(self._done * (1 / share - 1) / rate)}")
        return ", ".join(parts + [note] * bool(note))

    def _amount(self, number):
        return (
            f"{number / 1e6:,.1f} MB"
            if self._unit == "bytes"
            else f"{number:,.0f} {self._unit}"
        )

    def _show(self, line):
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        else:
            logging.info("%s", line)


def _clock(seconds):
    minutes, seconds = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
