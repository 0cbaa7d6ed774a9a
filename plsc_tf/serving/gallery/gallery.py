"""Gallery: enroll people by their embeddings, and identify others among them."""

import contextlib
import fcntl
import os
import sqlite3
import threading
import typing

import numpy as np

from plsc_tf.serving.gallery import search
from plsc_tf.serving.gallery.rows import Rows

MAX_ROWS = 10_000_000
# Rows that are copied at a time when gaps are closed, and fewer than which are left.
_COPIED_ROWS, _FEW_ROWS = 1 << 16, 1024
_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS people (
    -- Never reused: a search may still hold the number of a person who was removed.
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE NOT NULL
);
CREATE TABLE IF NOT EXISTS faces (row INTEGER PRIMARY KEY, person INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS faces_of_person ON faces (person);
"""


class Match(typing.NamedTuple):
    """A person that a query looks like, and the cosine to the nearest face."""

    name: str
    score: float


class Gallery:
    """People and their embeddings in a folder.

    Example: `Gallery("people", 512).enrol("ada", embeddings)`.

    Embeddings are kept at length 1, in a file that is mapped into memory; an SQLite
    database holds whose they are. An enrollment is written first and counts when
    the database says so, so that a crash leaves all of it or nothing. Removed faces
    leave gaps, which are closed at opening once half of the file is gaps.

    All methods may be called from several threads; a folder belongs to one process.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        dim: int | None = None,
        *,
        dtype: str = "float32",
        model: str = "",
    ):
        """Opens a gallery, or makes one.

        Args:
            folder: path; made when missing.
            dim: embedding size; needed for a new gallery.
            dtype: numbers of a new gallery, "float32" or "float16", whose cosines
                differ by at most 0.001.
            model: identifies what made the embeddings, as the server's fingerprint of
                a model; those of different models cannot be compared. Empty: ignored.

        Raises:
            ValueError: the gallery has another dim or model.
            BlockingIOError: another process has it open.
            OSError: it cannot be opened.
        """
        self._folder = os.fspath(folder)
        os.makedirs(self._folder, exist_ok=True)
        self._lock = threading.RLock()
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(open(self._path("lock"), "a", encoding="utf8"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BlockingIOError(
                    error.errno,
                    f"The gallery {self._folder!r} is open in another process",
                ) from None
            path = self._path("gallery.db")
            self._base = sqlite3.connect(path, check_same_thread=False)
            stack.callback(self._base.close)
            # The folder survives a loss of power right after an enrollment.
            self._base.execute("PRAGMA synchronous = FULL")
            self._base.executescript(_SCHEMA)
            about = self._about(dim, dtype, model)
            self.dim, self.dtype, self.model = int(about["dim"]), about["dtype"], model
            self._rows = self._open_rows(self._close_gaps(about["rows"]))
            stack.callback(self._rows.close)
            self._load()
            self._stack = stack.pop_all()

    def _about(self, dim, dtype, model):
        about = dict(self._base.execute("SELECT key, value FROM about"))
        if not about:
            if dim is None or dim < 1 or dtype not in ("float32", "float16"):
                raise ValueError(
                    "A new gallery needs dim, the embedding size, and dtype float32 or "
                    f"float16. Received: dim={dim}, dtype={dtype!r}."
                )
            about = {"dim": dim, "dtype": dtype, "model": model, "rows": "rows-0.bin"}
            self._set(about)
        if dim is not None and dim != int(about["dim"]):
            raise ValueError(
                f"The gallery {self._folder!r} has embeddings of {about['dim']} "
                f"numbers. Received: dim={dim}."
            )
        if model and about["model"] and model != about["model"]:
            raise ValueError(
                f"The gallery {self._folder!r} was made with another model; its "
                "embeddings cannot be compared. Enroll again, in a new folder."
            )
        if model and not about["model"]:
            self._set({"model": model})
        return about

    def _set(self, about):
        with self._base:
            self._base.executemany(
                "INSERT OR REPLACE INTO about VALUES (?, ?)",
                [(key, str(value)) for key, value in about.items()],
            )

    def _one(self, query, *values):
        """The first value of the first row of a query's result, or None."""
        row = self._base.execute(query, values).fetchone()
        return None if row is None else row[0]

    def _open_rows(self, name):
        return Rows(self._path(name), self.dim, self.dtype)

    def _load(self):
        """Reads the owner of every row; 0 for gaps. SQLite counts people from 1."""
        self._count = self._one("SELECT ifnull(max(row) + 1, 0) FROM faces")
        self._owner = np.zeros(max(self._count, _FEW_ROWS), np.int32)
        cursor = self._base.execute("SELECT row, person FROM faces")
        while batch := cursor.fetchmany(100_000):
            rows, people = np.array(batch, np.int64).T
            self._owner[rows] = people
        # Most faces of a person: this many rows may precede the next person's.
        self._most = int(np.bincount(self._owner)[1:].max(initial=0))

    def _close_gaps(self, name):
        """Copies the faces to a new file if gaps are more than half of the old one.

        Args:
            name: of the file of rows.

        Returns:
            the name of the file to use.
        """
        for other in os.listdir(self._folder):
            if other.startswith("rows-") and other != name:
                os.unlink(self._path(other))
        rows = self._base.execute("SELECT row FROM faces ORDER BY row").fetchall()
        rows = np.array(rows, np.int64).reshape(-1)
        last = rows[-1] + 1 if len(rows) else 0
        if 2 * len(rows) >= last or last < _FEW_ROWS:
            return name
        number = int(name.removeprefix("rows-").removesuffix(".bin")) + 1
        new_name = f"rows-{number}.bin"
        old, new = self._open_rows(name), self._open_rows(new_name)
        for start in range(0, len(rows), _COPIED_ROWS):
            new.write(start, old.read()[rows[start : start + _COPIED_ROWS]])
        old.close()
        new.close()
        with self._base:
            # In this order no number is in use when it is assigned.
            self._base.executemany(
                "UPDATE faces SET row = ? WHERE row = ?", enumerate(rows.tolist())
            )
            self._set({"rows": new_name})
        os.unlink(self._path(name))
        return new_name

    def __len__(self):
        """Number of faces."""
        with self._lock:
            return int(np.count_nonzero(self._owner[: self._count]))

    def people(self) -> dict[str, int]:
        """Returns a dict, name -> number of faces, in the order of enrollment."""
        with self._lock:
            return dict(
                self._base.execute(
                    "SELECT name, count(*) FROM faces JOIN people ON id = person "
                    "GROUP BY person ORDER BY person"
                )
            )

    @property
    def num_people(self) -> int:
        """Number of people."""
        with self._lock:
            return self._one("SELECT count(*) FROM people")

    def enrol(self, name: str, embeddings: np.ndarray) -> int:
        """Adds faces of a person, who may be known already.

        Args:
            name: the person's name, a text that is not empty.
            embeddings: [n, dim] or [dim], finite and not 0.

        Returns:
            Number of faces of the person.

        Raises:
            ValueError: an argument has the wrong form, or the gallery is full.
            OSError: the disk is full; nothing has changed.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"name must be a text. Received: name={name!r}.")
        unit = self._unit(embeddings)
        with self._lock:
            first, last = self._count, self._count + len(unit)
            if last > MAX_ROWS:
                raise ValueError(f"A gallery may have {MAX_ROWS} faces, gaps included.")
            self._rows.write(first, unit)
            with self._base:
                self._base.execute(
                    "INSERT OR IGNORE INTO people (name) VALUES (?)", (name,)
                )
                person = self._person(name)
                self._base.executemany(
                    "INSERT INTO faces VALUES (?, ?)",
                    [(row, person) for row in range(first, last)],
                )
            if last > len(self._owner):
                # A new array: a search may be reading the old one.
                grown = np.zeros(max(last, 2 * len(self._owner)), np.int32)
                grown[:first] = self._owner[:first]
                self._owner = grown
            self._owner[first:last] = person
            self._count = last
            faces = self._faces(person)
            self._most = max(self._most, faces)
            return faces

    def remove(self, name: str) -> int:
        """Removes a person; returns the number of faces, 0 for an unknown name."""
        with self._lock:
            person = self._person(name)
            if person is None:
                return 0
            faces = self._faces(person)
            with self._base:
                self._base.execute("DELETE FROM faces WHERE person = ?", (person,))
                self._base.execute("DELETE FROM people WHERE id = ?", (person,))
            self._owner = np.where(self._owner == person, 0, self._owner)
            return faces

    def identify(
        self, embeddings: np.ndarray, *, count: int = 1, threshold: float | None = None
    ) -> list[list[Match]]:
        """Finds the people that embeddings look like.

        Args:
            embeddings: queries, [n, dim] or [dim].
            count: number of people to return for each, at most.
            threshold: smallest cosine that counts; None: all do.

        Returns:
            list of n lists of `Match`, best first, each person once.

        Raises:
            ValueError: an argument has the wrong form.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1. Received: count={count}.")
        unit = self._unit(embeddings)
        with self._lock:
            owner, rows = self._owner[: self._count], self._rows.read()[: self._count]
            most = max(1, self._most)
        # The first count * most rows are of `count` people at least.
        scores, indices = search.top(unit, rows, owner > 0, count * most)
        return [
            self._matches(*pair, count, threshold)
            for pair in zip(scores.tolist(), owner[indices].tolist(), strict=True)
        ]

    def _matches(self, scores, people, count, threshold):
        matches, seen = [], set()
        for score, person in zip(scores, people, strict=True):
            if len(matches) == count or (threshold is not None and score < threshold):
                break
            if person in seen:
                continue
            seen.add(person)
            with self._lock:
                name = self._one("SELECT name FROM people WHERE id = ?", person)
            # Removed since the search began: no match, and no error.
            if name is not None:
                # Rounded numbers may exceed 1 by as much as they are rounded.
                matches.append(Match(name, min(score, 1.0)))
        return matches

    def close(self) -> None:
        """Closes the gallery; everything is on disk already."""
        with self._lock:
            self._stack.close()

    def __enter__(self):
        """Returns the gallery itself."""
        return self

    def __exit__(self, *exc):
        """Closes."""
        self.close()

    def _person(self, name):
        return self._one("SELECT id FROM people WHERE name = ?", name)

    def _faces(self, person):
        return self._one("SELECT count(*) FROM faces WHERE person = ?", person)

    def _unit(self, embeddings):
        array = np.atleast_2d(np.asarray(embeddings, np.float32))
        if array.ndim != 2 or array.shape[1] != self.dim or not len(array):
            raise ValueError(
                f"embeddings must be [n, {self.dim}], n at least 1. Received: "
                f"{np.shape(embeddings)}."
            )
        norms = np.linalg.norm(array.astype(np.float64), axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not norms.all():
            raise ValueError("embeddings must be finite and not 0.")
        return (array / norms).astype(np.float32)

    def _path(self, name):
        return os.path.join(self._folder, name)
