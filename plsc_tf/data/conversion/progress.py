"""How far a conversion is, how fast, and how long it will take."""

from __future__ import annotations

import sys
import time

from absl import logging


class Progress:
    """Shows a line that renews itself on a terminal, else a log line now and then.

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

    def resumed(self, done: int) -> None:
        """Tells what was done by an earlier process."""
        self._done += done
        self._before += done

    def add(self, done: int, note: str = "") -> None:
        """Counts what was done, and reports when it is time."""
        self._done += done
        now = time.monotonic()
        if now - self._last >= self._every_s:
            self._last = now
            self._show(self._line(now, note))

    def close(self) -> None:
        """Ends the line of a terminal."""
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _line(self, now, note):
        rate = (self._done - self._before) / max(now - self._begun, 1e-9)
        parts = [f"{self._doing}: {self._amount(self._done)}"]
        if self._total:
            share = 100 * self._done / self._total
            done = self._amount(self._done).removesuffix(f" {self._unit}")
            total = self._amount(self._total)
            parts[0] = f"{self._doing}: {done} of {total} ({share:.0f} %)"
        parts.append(f"{self._amount(rate)}/s")
        if self._total and rate:
            parts.append(f"ETA {_clock((self._total - self._done) / rate)}")
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
