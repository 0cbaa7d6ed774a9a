"""Metrics of a run as JSON lines and as a table (CSV)."""

import csv
import io

from plsc_tf.reporting.recorder import Guard, Sink
from plsc_tf.requirements import require
from plsc_tf.storage import files, json_text, local
from plsc_tf.storage.paths import local_path

JSONL, CSV = "metrics.jsonl", "metrics.csv"
_MOST_CELLS = 1 << 24
# A sparse file that takes no disk could have any size.
_MOST_BYTES = 1 << 29


class MetricsFiles(Sink):
    """Writes two files with one row per step that has metrics.

    `metrics.jsonl` has one JSON object per line; `metrics.csv` has the same data as a
    table. A resumed run removes the rows of later steps because it writes them again.

    All metrics of a step, including those of a verification or an epoch, share one row.
    On a local disk, JSON lines are appended immediately. If a step's row grows, the
    file has several lines for this step, of which the last one counts. Both files are
    rewritten at the end of the epoch. If one of them cannot be read or written, both
    stay as they are, but the rows are kept in memory.

    Args:
        folder: the run's folder.

    Attributes:
        rows: list of `{"step": int, name: number}`, in ascending order of steps.
    """

    def __init__(self, folder: str):
        self.rows: list[dict] = []
        self._jsonl, self._csv = files.join(folder, JSONL), files.join(folder, CSV)
        self._guard = Guard(f"{self._jsonl} and {CSV}")
        # Before `begin`, writing would replace the rows in existing files.
        self._begun = False

    def begin(self, step: int) -> None:
        """Reads the run's existing rows up to `step`."""
        self.flush()
        earlier = self._guard(lambda: read(self._jsonl), [])
        rows = {row["step"]: row for row in earlier if row["step"] <= step}
        self.rows = list(rows.values())
        self._begun = True
        self.flush()

    def scalars(self, step: int, values: dict) -> None:
        """Adds metrics to the step's row."""
        if not self.rows or self.rows[-1]["step"] != step:
            self.rows.append({"step": step})
        self.rows[-1] |= {name: float(value) for name, value in values.items()}
        if self._begun and files.is_local(self._jsonl):
            self._guard(self._append)

    def flush(self) -> None:
        """Writes both files."""
        if self._begun:
            self._guard(self._write)

    close = flush

    def _append(self):
        with open(local_path(self._jsonl), "ab", opener=local.without_links) as file:
            file.write(_json_line(self.rows[-1]))

    def _write(self):
        files.replace(self._jsonl, b"".join(map(_json_line, self.rows)))
        names = dict.fromkeys(name for row in self.rows for name in row)
        text = io.StringIO()
        table = csv.DictWriter(text, list(names) or ["step"], lineterminator="\n")
        table.writeheader()
        table.writerows(self.rows)
        files.replace(self._csv, text.getvalue().encode())


def read(path: str) -> list[dict]:
    """Reads rows from JSON lines; stops at the first incomplete line.

    Raises:
        ValueError: a value is not a number.
    """
    if not files.exists(path):
        return []
    rows, names = [], set()
    for line in io.BytesIO(files.read_limited(path, _MOST_BYTES)):
        try:
            row = json_text.parse(line, path)
        except (ValueError, RecursionError):
            break  # the line is incomplete, for example after a power loss
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            break
        numbers = all(isinstance(value, int | float | None) for value in row.values())
        require(numbers, f"{path} must have only numbers", step=row["step"])
        names |= row.keys()
        # In a forged file, the table would have a column for each row.
        cells = (len(names) + 20) * (len(rows) + 1)  # a row takes as much as 20
        if cells > _MOST_CELLS or not 0 <= row["step"] < 1 << 53:
            break
        rows.append(row)
    return rows


def _json_line(row):
    """Encodes a row."""
    return f"{json_text.finite(row)}\n".encode()
