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
    disk JSON lines are written at once; everything else is written at the end of each
    epoch.

    Args:
        folder: of the run.
        written: False only keeps the rows of this process, and writes nothing.

    Attributes:
        rows: list of `{"step": int, name: number}`, steps ascending.
    """

    def __init__(self, folder: str, written: bool = True):
        self.rows = []
        self.written = written
        self._jsonl, self._csv = files.join(folder, JSONL), files.join(folder, CSV)
        self._guards = {path: Guard(path) for path in (self._jsonl, self._csv)}
        self._file = None
        self._last = 0
        # Until it begins, its rows must not replace those of the files.
        self._begun = False

    def begin(self, step: int) -> None:
        """Reads the rows of the run so far, up to a step."""
        if not self.written:
            return
        self.close()
        both = Guard(f"{self._jsonl} and {CSV}")
        earlier = both(lambda: read(self._jsonl), [])
        self.rows = [row for row in earlier if row["step"] <= step]
        self._begun = not both.broken  # unreadable files are not overwritten
        self.flush()

    def scalars(self, step: int, values: dict) -> None:
        """Adds figures to the row of a step."""
        again = bool(self.rows) and self.rows[-1]["step"] == step
        if not again:
            self.rows.append({"step": step})
        self.rows[-1] |= {name: float(value) for name, value in values.items()}
        if self._file is not None:
            self._guards[self._jsonl](lambda: self._append(replacing=again))

    def flush(self) -> None:
        """Writes both files."""
        if self._begun:
            self._guards[self._jsonl](self._write_jsonl)
            self._guards[self._csv](self._write_csv)

    def close(self) -> None:
        """Writes both files, and closes the one that is open."""
        self.flush()
        self._close()

    def _write_jsonl(self):
        self._close()
        lines = [_json_line(row) for row in self.rows]
        files.replace(self._jsonl, b"".join(lines))
        if files.is_local(self._jsonl):
            self._file = open(local_path(self._jsonl), "r+b")
            self._last = self._file.seek(0, io.SEEK_END) - len(b"".join(lines[-1:]))

    def _write_csv(self):
        names = dict.fromkeys(name for row in self.rows for name in row)
        text = io.StringIO()
        table = csv.DictWriter(text, list(names) or ["step"], lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        files.replace(self._csv, text.getvalue().encode())

    def _append(self, replacing):
        """Adds the last row, or replaces it in the file."""
        if replacing:
            self._file.seek(self._last)
            self._file.truncate()
        self._last = self._file.tell()
        self._file.write(_json_line(self.rows[-1]))
        self._file.flush()

    def _close(self):
        file, self._file = self._file, None
        if file is not None:
            self._guards[self._jsonl](file.close)


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
