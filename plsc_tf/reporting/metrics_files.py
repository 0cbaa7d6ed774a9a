"""The figures of a run as JSON lines and as a table (CSV)."""

import csv
import io
import json
import math

from plsc_tf.reporting.recorder import Guard, Sink
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

JSONL, CSV = "metrics.jsonl", "metrics.csv"


class MetricsFiles(Sink):
    """Keeps one row per step that has figures, in two files.

    `metrics.jsonl` has one JSON object per line, `metrics.csv` the same as a table.
    A resumed run removes the rows that are later than its first step, so that each
    step has one row.

    Figures of the same step (a verification's, an epoch's) join its row. On a local
    disk JSON lines are appended at once: until the end of the epoch, when both files
    are written anew, a step whose row has grown has several lines, the last of which
    counts.

    Args:
        folder: of the run.
        written: False only keeps the rows of this process, and writes nothing.

    Attributes:
        rows: list of `{"step": int, name: number}`, steps ascending.
    """

    def __init__(self, folder: str, written: bool = True):
        self.rows, self.written = [], written
        self._jsonl, self._csv = files.join(folder, JSONL), files.join(folder, CSV)
        self._guards = {path: Guard(path) for path in (self._jsonl, self._csv)}
        # Until it begins, its rows must not replace those of the files.
        self._begun = False

    def begin(self, step: int) -> None:
        """Reads the rows of the run so far, up to a step."""
        if not self.written:
            return
        self.flush()
        both = Guard(f"{self._jsonl} and {CSV}")
        earlier = both(lambda: read(self._jsonl), [])
        rows = {row["step"]: row for row in earlier if row["step"] <= step}
        self.rows = list(rows.values())
        self._begun = not both.broken  # unreadable files are not overwritten
        self.flush()

    def scalars(self, step: int, values: dict) -> None:
        """Adds figures to the row of a step."""
        if not self.rows or self.rows[-1]["step"] != step:
            self.rows.append({"step": step})
        self.rows[-1] |= {name: float(value) for name, value in values.items()}
        if self._begun and files.is_local(self._jsonl):
            self._guards[self._jsonl](self._append)

    def flush(self) -> None:
        """Writes both files."""
        if self._begun:
            lines = b"".join(map(_json_line, self.rows))
            self._guards[self._jsonl](lambda: files.replace(self._jsonl, lines))
            self._guards[self._csv](self._write_csv)

    close = flush

    def _append(self):
        with open(local_path(self._jsonl), "ab") as file:
            file.write(_json_line(self.rows[-1]))

    def _write_csv(self):
        names = dict.fromkeys(name for row in self.rows for name in row)
        text = io.StringIO()
        table = csv.DictWriter(text, list(names) or ["step"], lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        files.replace(self._csv, text.getvalue().encode())


def read(path: str) -> list[dict]:
    """The rows of JSON lines with a step; without the last one if it is cut off."""
    if not files.exists(path):
        return []
    rows = []
    for line in files.read(path).decode(errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            break  # a machine that lost power
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            break
        rows.append(row)
    return rows


def _json_line(row):
    """JSON has no NaN and no infinity."""
    finite = {
        n: v if v is not None and math.isfinite(v) else None for n, v in row.items()
    }
    return f"{json.dumps(finite)}\n".encode()
