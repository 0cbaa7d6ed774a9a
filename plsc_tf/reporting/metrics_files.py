"""The figures of a run as JSON lines and as a table (CSV)."""

import csv
import io
import json
import math

from plsc_tf.reporting.guard import Guard
from plsc_tf.storage import files
from plsc_tf.storage.paths import local_path

JSONL, CSV = "metrics.jsonl", "metrics.csv"


class MetricsFiles:
    """Keeps one row per step that figures are told of, in two files.

    `metrics.jsonl` has one JSON object per line, `metrics.csv` the same as a table with
    a first line of names. A resumed run takes back the rows that are later than
    the step it goes on from, so that each step stands there once.

    Figures of the same step (a verification's, an epoch's) join its row. On a local
    disk rows are written when they come, elsewhere at the end of each epoch.

    Args:
        folder: of the run.
        written: False only keeps the rows of this process, and writes nothing.

    Attributes:
        rows: list of `{"step": int, name: number}`, steps ascending.
    """

    def __init__(self, folder, written=True):
        self.rows = []
        self.written = written
        self._local = files.is_local(folder)
        self._jsonl = files.join(folder, JSONL)
        self._files = [
            _File(self._jsonl, lambda _: b"", _as_json),
            _File(files.join(folder, CSV), _line, _as_cells),
        ]
        self._columns = []
        # Before, there is nothing here that could take the place of the files.
        self._begun = False

    def begin(self, step):
        """Reads the rows of the run so far, up to a step."""
        if not self.written:
            return
        self.close()
        both = Guard(f"{self._jsonl} and {CSV}")
        earlier = both(lambda: read(self._jsonl), [])
        self.rows = [row for row in earlier if row["step"] <= step]
        self._begun = not both.broken  # what cannot be read is not overwritten
        if self._begun and self._local:
            self._rewrite()

    def scalars(self, step, values):
        """Adds figures to the row of a step."""
        values = {name: float(value) for name, value in values.items()}
        again = bool(self.rows) and self.rows[-1]["step"] == step
        if again:
            self.rows[-1] |= values
        else:
            self.rows.append({"step": step, **values})
        if not (self._begun and self._local):
            return
        if set(values) - set(self._columns):
            self._rewrite()
            return
        for file in self._files:
            file.append(self.rows[-1], self._columns, replacing=again)

    def histogram(self, step, name, values):
        """Nothing: these files hold numbers."""

    def images(self, step, name, pictures):
        """Nothing: these files hold numbers."""

    def flush(self):
        """Writes what a store that takes no additions has not got yet."""
        if self._begun and not self._local:
            self._rewrite()

    def close(self):
        """Writes what is not written yet."""
        self.flush()
        for file in self._files:
            file.close()

    def _rewrite(self):
        self._columns = list(dict.fromkeys(name for row in self.rows for name in row))
        for file in self._files:
            file.rewrite(self.rows, self._columns, stays_open=self._local)


class _File:
    """One of the files; one that cannot be written costs that file only.

    Args:
        path: of the file.
        header: function of the names of the columns -> bytes.
        line: function of a row and the names of the columns -> bytes.
    """

    def __init__(self, path, header, line):
        self._path, self._header, self._line = path, header, line
        self._guard = Guard(path)
        self._file = None
        self._last = 0

    def rewrite(self, rows, columns, stays_open):
        """Writes all rows; the file stays open where rows can be added to it."""
        self._guard(lambda: self._rewrite(rows, columns, stays_open))

    def append(self, row, columns, replacing):
        """Adds a row, or writes it over the last one."""
        self._guard(lambda: self._append(self._line(row, columns), replacing))

    def close(self):
        """Closes the file."""
        file, self._file = self._file, None
        if file is not None:
            self._guard(file.close)

    def _rewrite(self, rows, columns, stays_open):
        self.close()
        lines = [self._line(row, columns) for row in rows]
        files.replace(self._path, b"".join([self._header(columns or ["step"]), *lines]))
        if stays_open:
            self._file = open(local_path(self._path), "r+b")
            self._last = self._file.seek(0, io.SEEK_END) - len(b"".join(lines[-1:]))

    def _append(self, text, replacing):
        if replacing:
            self._file.seek(self._last)
            self._file.truncate()
        else:
            self._last = self._file.tell()
        self._file.write(text)
        self._file.flush()


def read(path):
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


def _line(values):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()


def _as_cells(row, columns):
    return _line([row.get(name, "") for name in columns])


def _as_json(row, columns):
    """JSON has no NaN and no infinity."""
    del columns
    plain = {n: v if _is_finite(v) else None for n, v in row.items()}
    return f"{json.dumps(plain)}\n".encode()


def _is_finite(value):
    return value is not None and math.isfinite(value)
