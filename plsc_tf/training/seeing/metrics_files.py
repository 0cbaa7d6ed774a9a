"""The figures of a run as JSON lines and as a table (CSV)."""

import csv
import io
import json
import math

from absl import logging

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
        self._paths = [files.join(folder, name) for name in (JSONL, CSV)]
        self._local = files.is_local(folder)
        self._open = []
        self._last = []
        self._columns = []
        self._broken = False
        # Before, there is nothing here that could take the place of the files.
        self._begun = False

    def begin(self, step):
        """Reads the rows of the run so far, up to a step."""
        if not self.written:
            return
        self.close()
        self.rows = [row for row in read(self._paths[0]) if row["step"] <= step]
        self._begun = True
        self._guarded(self._rewrite)

    def scalars(self, step, values):
        """Adds figures to the row of a step."""
        values = {name: float(value) for name, value in values.items()}
        again = bool(self.rows) and self.rows[-1]["step"] == step
        if again:
            self.rows[-1] |= values
        else:
            self.rows.append({"step": step, **values})
        if not self._open:
            return
        if set(values) - set(self._columns):
            self._guarded(self._rewrite)
        else:
            self._guarded(lambda: self._append(replacing=again))

    def histogram(self, step, name, values):
        """Nothing: these files hold numbers."""

    def images(self, step, name, pictures):
        """Nothing: these files hold numbers."""

    def flush(self):
        """Writes what a store that takes no additions has not got yet."""
        if self._begun and not self._local:
            self._guarded(self._replace)

    def close(self):
        """Writes what is not written yet."""
        self.flush()
        for file in self._open:
            file.close()
        self._open = []

    def _rewrite(self):
        if not self._local:
            return
        for file in self._open:
            file.close()
        self._open, self._last = [], []
        self._replace()
        for path, text in zip(self._paths, self._texts(self.rows[-1:]), strict=True):
            file = open(local_path(path), "r+b")
            end = file.seek(0, io.SEEK_END)
            self._open.append(file)
            self._last.append(end - len(text))

    def _append(self, replacing):
        texts = self._texts(self.rows[-1:])
        for number, (file, text) in enumerate(zip(self._open, texts, strict=True)):
            if replacing:
                file.seek(self._last[number])
                file.truncate()
            else:
                self._last[number] = file.tell()
            file.write(text)
            file.flush()

    def _replace(self):
        self._columns = _columns(self.rows)
        jsonl, table = self._texts(self.rows)
        header = _line(self._columns or ["step"])
        for path, text in zip(self._paths, (jsonl, header + table), strict=True):
            files.replace(path, text)

    def _texts(self, rows):
        jsonl = "".join(f"{json.dumps(_plain(row))}\n" for row in rows)
        table = b"".join(
            _line([row.get(name, "") for name in self._columns]) for row in rows
        )
        return jsonl.encode(), table

    def _guarded(self, write):
        """A disk that is full costs the files, and not the training."""
        if self._broken:
            return
        try:
            write()
        except OSError as error:
            self._broken = True
            self._open = []
            logging.warning("No more figures are written to the run: %s", error)


def read(path):
    """The rows of a `metrics.jsonl`; without its last line where that is cut off."""
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


def _columns(rows):
    return list(dict.fromkeys(name for row in rows for name in row))


def _line(values):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()


def _plain(row):
    """JSON has no NaN and no infinity."""
    return {n: v if _is_finite(v) else None for n, v in row.items()}


def _is_finite(value):
    return value is not None and math.isfinite(value)
