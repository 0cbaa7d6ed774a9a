"""The line that tells how far a training is."""

import shutil
import sys
import time

from absl import logging

BAR = 20
# On a terminal the line is redrawn so often.
REDRAW_S = 0.5


class ProgressLine:
    """Redrawn in place on a terminal, with a bar; elsewhere a line of the log.

    Args:
        total_steps: of the run, None when unknown.
        stream: where to; None: stderr.
    """

    def __init__(self, total_steps, stream=None):
        self._total = total_steps
        self._stream = stream
        self._open = False
        self._drawn = 0.0

    def tell(self, step, text):
        """Shows a line that is due."""
        if self._to().isatty():
            self.redraw(step, text)
        else:
            logging.info("%s", text)

    def wants_more(self, now):
        """Whether a terminal's line is old; `now` as of `time.monotonic`."""
        return now - self._drawn >= REDRAW_S and self._to().isatty()

    def redraw(self, step, text):
        """Draws over the line before; what does not fit into it is cut off."""
        line = f"{self._bar(step)}{text}"
        width = shutil.get_terminal_size().columns
        self._to().write(f"\r\x1b[K{line[: max(width - 1, BAR)]}")
        self._to().flush()
        self._open, self._drawn = True, time.monotonic()

    def end(self):
        """Goes to a line of its own for what others have to say."""
        if self._open:
            self._to().write("\n")
            self._open = False

    def _bar(self, step):
        if not self._total:
            return ""
        done = min(round(BAR * step / self._total), BAR)
        return f"[{'=' * done}{' ' * (BAR - done)}] "

    def _to(self):
        return self._stream or sys.stderr


def format_seconds(seconds):
    """`1:02:03` or `2:03`; what is less than 0 is 0."""
    minutes, seconds = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds:02d}"
    return f"{minutes}:{seconds:02d}"
