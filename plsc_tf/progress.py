"""Progress display: a line redrawn in place on a terminal, otherwise log lines."""

import contextlib
import datetime
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from absl import logging

T = TypeVar("T")
BAR = 20
# Seconds between two redraws on a terminal, and between two log lines.
REDRAW_S, LOG_EVERY_S = 0.5, 10.0


class ProgressLine:
    """Shows progress as a line redrawn in place on a terminal, or as log lines.

    Args:
        total: total amount of work, for a progress bar; None shows no bar.
    """

    def __init__(self, total: int | None = None):
        self._total, self._open, self._drawn = total, False, 0.0

    def show(self, done: int, text: Callable[[], str], due: bool = True) -> None:
        """Shows the line: in the log if it is due; on a terminal, also in between.

        Args:
            done: amount of finished work.
            text: function that returns the line, which is cut to the terminal's width.
            due: whether to show it in any case.
        """
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if due and not terminal:
            logging.info("%s", text())
        if terminal and (due or now - self._drawn >= REDRAW_S):
            width, bar = shutil.get_terminal_size().columns, ""
            if self._total:
                bar = f"[{'=' * min(round(BAR * done / self._total), BAR):<{BAR}}] "
            sys.stderr.write(f"\r\x1b[K{f'{bar}{text()}'[: max(width - 1, BAR)]}")
            sys.stderr.flush()
            self._open, self._drawn = True, now

    def end(self) -> None:
        """Moves to a new line if a line is open on the terminal."""
        if self._open:
            sys.stderr.write("\n")
            self._open = False


class Progress(contextlib.AbstractContextManager):
    """Counts work and shows the amount, percentage, rate and remaining time.

    `add` is thread-safe. The end of a `with` block ends the terminal's line.

    Args:
        doing: short description of the work.
        total: total amount of work in `unit`; None if unknown.
        unit: "bytes", or a plural such as "records" or "images".
        done: work done by an earlier process, which doesn't count toward the rate.
    """

    def __init__(self, doing: str, total: int | None, unit: str, done: int = 0):
        self._doing, self._total, self._unit = doing, total, unit
        self._shown = ProgressLine()
        self._every_s = REDRAW_S if sys.stderr.isatty() else LOG_EVERY_S
        self._begun = self._last = time.monotonic()
        self._done = self._before = done
        self._lock = threading.Lock()

    def __exit__(self, *_):
        self._shown.end()

    def add(self, done: int) -> None:
        """Counts additional work and shows a line if it is due."""
        with self._lock:
            self._done += done
            now = time.monotonic()
            if now - self._last < self._every_s:
                return
            self._last = now
            rate = (self._done - self._before) / max(now - self._begun, 1e-9)
            text, speed = self._amount(self._done), f"{self._amount(rate)}/s"
            if self._total:
                share, whole = self._done / self._total, self._amount(self._total)
                text = f"{text.removesuffix(f' {self._unit}')} of {whole} ({share:.0%})"
                left = format_seconds((self._total - self._done) / max(rate, 1e-9))
                speed += f", ETA {left}"
            self._shown.show(0, lambda: f"{self._doing}: {text}, {speed}")

    def over(
        self, items: Iterable[T], work: Callable[[T], int] = lambda item: 1
    ) -> Iterator[T]:
        """Yields the items, and counts the `work` that each was."""
        with self:
            for item in items:
                yield item
                self.add(work(item))

    def _amount(self, number):
        if self._unit == "bytes":
            return f"{number / 1e6:,.1f} MB"
        return f"{number:,.0f} {self._unit}"


def format_seconds(seconds: float) -> str:
    """Formats a duration as `1:02:03`; negative durations become 0."""
    return str(datetime.timedelta(seconds=max(round(seconds), 0)))
