"""A gallery that stores people's face embeddings and identifies queries among them."""

import contextlib
import errno
import fcntl
import os
import sqlite3
import threading
import typing
import zlib

import numpy as np

from plsc_tf.requirements import require
from plsc_tf.serving import gallery_database

# Number of faces read at a time when a gallery is opened.
_READ_FACES = 1 << 16
# People's numbers are lower.
_LAST_ID = 1 << 62
# Number of faces for which there is always room.
_SPARE = 1 << 12
# Number of float32 values in one block of a search: 16 MB suits caches and threads.
_BLOCK_NUMBERS = 1 << 22
# Number of scores kept for the queries that are searched together.
_KEPT_SCORES = 1 << 18
# Maximum number of characters of a name; gallery.sql has that of its bytes.
LONGEST_NAME = 256
# Maximum number of a person's faces: removing them takes 0.3 s, and searches wait.
MOST_FACES = 10_000
# What to do with a folder that cannot be used.
_ENROLL = "Enroll the faces again in a new folder."
_RESTORE = "Restore gallery.db from a backup, or enroll again in a new folder."
# Errors that changed values cause.
_DAMAGE = (TypeError, OverflowError, UnicodeError, MemoryError)


class Match(typing.NamedTuple):
    """A person who resembles a query, and the cosine to that person's nearest face."""

    name: str
    score: float


class Gallery(contextlib.AbstractContextManager):
    """Stores people and their face embeddings in a folder.

    Example: `Gallery("people", 512).enrol("ada", embeddings)`.

    An SQLite database holds the names, and the embeddings normalized to length 1. While
    the gallery is open, the embeddings are also in memory. Each enrollment is one
    transaction, so a crash never leaves part of it.

    All methods are thread-safe; only one process at a time can open a folder.
    """

    def __init__(
        self, folder: str | os.PathLike, dim: int | None = None, *, model: str = ""
    ):
        """Opens a gallery, or creates one.

        Args:
            folder: path of the gallery; created if missing.
            dim: embedding size; required for a new gallery.
            model: identifies the model that computes the embeddings, for example the
                server's fingerprint of a model; embeddings of different models cannot
                be compared. If empty, the model is not checked.

        Raises:
            ValueError: the gallery is damaged or lost, has another dim or model, or was
                made by an earlier version of plsc_tf; or the arguments cannot make a
                new one.
            BlockingIOError: another process has opened the gallery.
            OSError: the gallery cannot be opened.
        """
        self._folder, self.model = os.fspath(folder), model
        os.makedirs(self._folder, 0o700, exist_ok=True)
        self._lock = threading.RLock()
        lock_path = os.path.join(self._folder, "lock")
        path, used = os.path.join(self._folder, "gallery.db"), os.path.exists(lock_path)
        if problem := gallery_database.foreign_file(self._folder):
            raise self._error(f"{problem}. {_RESTORE}")
        with contextlib.ExitStack() as stack:
            os.close(os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o600))
            lock = stack.enter_context(open(lock_path, "a", encoding="utf8"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                problem = f"The gallery {self._folder!r} is open in another process"
                raise BlockingIOError(error.errno, problem) from None
            if used and not (os.path.exists(path) and os.path.getsize(path)):
                raise self._error(f"has lost its gallery.db. {_RESTORE}")
            # Others on this machine may not read faces and names, nor add any.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            with contextlib.suppress(PermissionError):  # another user owns it
                os.chmod(path, 0o600)
                os.chmod(lock_path, 0o600)  # whoever can read it could hold the lock
            self._base = sqlite3.connect(path, check_same_thread=False)
            stack.callback(self._base.close)
            try:
                # First, because every other command reads the list of tables too.
                gallery_database.create_tables(self._base)
                # Otherwise, gallery.db alone may lack what is in gallery.db-wal.
                if self._one("PRAGMA journal_mode = DELETE") != "delete":
                    raise sqlite3.DatabaseError("its journal_mode cannot be changed")
                # With FULL, a power loss right after an enrollment loses nothing.
                self._base.execute("PRAGMA synchronous = FULL")
                # The file keeps no face that was removed.
                self._base.execute("PRAGMA secure_delete = ON")
                if (problem := self._one("PRAGMA integrity_check(1)")) != "ok":
                    raise sqlite3.DatabaseError(problem)
                self.dim = self._checked_dim(dim, model)
                self._opened = gallery_database.stamp(self._folder)
                self._read()
            except sqlite3.OperationalError as error:
                raise self._os_error("open", error) from error
            except (*_DAMAGE, sqlite3.Error) as error:
                raise self._error(f"is damaged: {error}. {_RESTORE}") from error
            self._stack = stack.pop_all()

    def _checked_dim(self, dim, model):
        """Returns the embedding size, after comparing it and the model; stores both."""
        stored = self._base.execute("SELECT dim, model FROM about").fetchone()
        valid = dim is not None and dim >= 1
        require(stored or valid, "A new gallery requires dim (embedding size)", dim=dim)
        own_dim, own_model = stored or (int(dim), "")
        rule = f"The gallery {self._folder!r} has dim={own_dim}"
        require(dim in (None, own_dim), rule, dim=dim)
        if model and own_model not in ("", model):
            raise self._error(f"was made with a different model. {_ENROLL}")
        about = own_dim, own_model or model
        if about != stored:  # A gallery on a full disk can still be read.
            with self._base:
                self._base.execute("DELETE FROM about")
                self._base.execute("INSERT INTO about VALUES (?, ?)", about)
        return own_dim

    def _read(self):
        """Reads all embeddings, and the id of the person each belongs to."""
        self._rows = np.zeros((0, self.dim), np.float32)
        self._owner = np.zeros(0, np.int64)  # a removed face has owner 0
        self._count = 0
        self._make_room(self._one("SELECT count(*) FROM faces"))
        ids = "id FROM people UNION ALL SELECT seq FROM sqlite_sequence WHERE seq"
        fits = f"coalesce(min(id) > 0 AND max(id) < {_LAST_ID}, TRUE)"
        if not self._one(f"SELECT {fits} FROM (SELECT {ids})"):
            raise TypeError("a person's number is below 1, or leaves none for others")
        columns = "id, name, embedding, checksum"
        query = f"SELECT {columns} FROM faces LEFT JOIN people ON id = person"
        faces = self._base.execute(query)
        while some := faces.fetchmany(_READ_FACES):
            if any(_sum_of(*face) != checksum for *face, checksum in some):
                raise TypeError("a face, its person or its checksum has changed")
            owners, _, data, _ = zip(*some, strict=True)
            rows = np.ndarray((len(data), self.dim), np.float32, b"".join(data))
            lengths = np.linalg.norm(rows.astype(np.float32), axis=1)
            whole = set(map(len, data)) == {4 * self.dim}
            if not (whole and min(owners) > 0 and np.allclose(lengths, 1, atol=0.01)):
                raise TypeError("an embedding does not have length 1, or no person")
            self._append(owners, rows)

    def _append(self, owners, rows):
        first, last = self._count, self._count + len(rows)
        if last > len(self._owner):
            self._make_room(last)
        self._rows[first:last], self._owner[first:last] = rows, owners
        self._count = last

    def _make_room(self, count):
        # New arrays, because a search may be reading the old ones. The system gives
        # memory to those rows that are written.
        room, used = count + count // 8 + _SPARE, self._count
        rows, owner = np.zeros((room, self.dim), np.float32), np.zeros(room, np.int64)
        rows[:used], owner[:used] = self._rows[:used], self._owner[:used]
        self._rows, self._owner = rows, owner

    def _one(self, query, *values):
        """Returns the first value of the first row of a query's result, or None."""
        return (self._base.execute(query, values).fetchone() or [None])[0]

    @contextlib.contextmanager
    def _transaction(self):
        try:
            with self._lock:
                self._base.execute("BEGIN IMMEDIATE")  # no other program writes now
                try:
                    with self._base:
                        self._require_unchanged()
                        yield
                finally:  # a failure is undone by the next query, which writes, too
                    with contextlib.suppress(sqlite3.Error):
                        self._one("SELECT dim FROM about")
                    self._opened = self._opened and gallery_database.stamp(self._folder)
        except sqlite3.OperationalError as error:
            raise self._os_error("write", error) from error

    def _require_unchanged(self):
        """Raises OSError if the file has changed: its people may have other numbers."""
        if self._opened != (gallery_database.stamp(self._folder) or ()):
            self._opened = None
            raise self._os_error("use", "another program changed it. Open it anew")

    def _error(self, problem):
        return ValueError(f"The gallery {self._folder!r} {problem}")

    def _os_error(self, action, error):
        number = errno.ENOSPC if "full" in str(error) else errno.EIO
        return OSError(number, f"Cannot {action} {self._folder!r}: {error}")

    def __len__(self):
        """Returns the number of faces."""
        # Without the lock: the server's event loop must not wait for a change.
        return int(np.count_nonzero(self._owner))

    def people(self) -> dict[str, int]:
        """Returns {name: number of faces} in the order of enrollment."""
        columns, order = "name, count(*)", "GROUP BY person ORDER BY person"
        query = f"SELECT {columns} FROM faces JOIN people ON id = person {order}"
        with self._lock:
            return dict(self._base.execute(query))

    @property
    def num_people(self) -> int:
        """The number of people."""
        with self._lock:
            self._require_unchanged()
            return self._one("SELECT count(*) FROM people")

    def enrol(self, name: str, embeddings: np.ndarray) -> int:
        """Adds faces of a new or an already enrolled person.

        Args:
            name: the person's name, a string of at most 256 characters.
            embeddings: `[n, dim]` or `[dim]`; without NaN or infinity, not all 0.

        Returns:
            The person's total number of faces.

        Raises:
            ValueError: an argument is invalid.
            OSError: the database cannot be written, for example because the disk is
                full; the gallery is unchanged.
        """
        fits = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME
        rule = f"name must be a string of 1 to {LONGEST_NAME} characters"
        require(fits, rule, name=f"{name!r:.80}")
        rows = self._unit(embeddings)
        data = [row.tobytes() for row in rows]
        with self._lock:
            with self._transaction():
                query = "INSERT OR IGNORE INTO people (name) VALUES (?)"
                self._base.execute(query, (name,))
                person = self._person(name)
                require(person < _LAST_ID, "No number is left for another person")
                count = self._faces(person) + len(rows)
                rule = f"A person may have at most {MOST_FACES} faces"
                require(count <= MOST_FACES, rule, faces=count)
                faces = [(person, d, _sum_of(person, name, d)) for d in data]
                self._base.executemany("INSERT INTO faces VALUES (?, ?, ?)", faces)
            self._append(person, rows)
            return count

    def remove(self, name: str) -> int:
        """Removes a person and returns how many faces were removed.

        Returns 0 if the name is unknown.
        """
        with self._lock:
            self._require_unchanged()
            if (person := self._person(name)) is None:
                return 0
            faces = self._faces(person)
            with self._transaction():
                self._base.execute("DELETE FROM faces WHERE person = ?", (person,))
                self._base.execute("DELETE FROM people WHERE id = ?", (person,))
            # Make new arrays, because a search may be reading the old ones.
            self._owner = np.where(self._owner == person, 0, self._owner)
            left = self._owner > 0
            if 2 * np.count_nonzero(left) < self._count:
                self._rows, self._owner = self._rows[left], self._owner[left]
                self._count = len(self._owner)
            return faces

    def identify(
        self, embeddings: np.ndarray, *, count: int = 1, threshold: float | None = None
    ) -> list[list[Match]]:
        """Finds the people who resemble the queries most.

        Args:
            embeddings: queries, `[n, dim]` or `[dim]`.
            count: maximum number of people to return for each query.
            threshold: smallest cosine of a match; None for no limit.

        Returns:
            A list of n lists of `Match`, best match first, each person at most once.

        Raises:
            ValueError: an argument is invalid.
        """
        # Every cosine would pass a threshold of NaN.
        fits = count >= 1 and np.isfinite(threshold or 0)
        rule = "count must be at least 1, and threshold finite or None"
        require(fits, rule, count=count, threshold=threshold)
        unit = self._unit(embeddings)
        least = -np.inf if threshold is None else threshold
        with self._lock:
            owner, rows = self._owner[: self._count], self._rows[: self._count]
        # Fewer queries at a time bound the memory, however large the gallery is.
        step = max(1, _KEPT_SCORES // (count * (1 + rows.size // _BLOCK_NUMBERS)))
        found = []
        for start in range(0, len(unit), step):
            scores, people = nearest(unit[start : start + step], rows, owner, count)
            pairs = zip(scores.tolist(), people.tolist(), strict=True)
            with self._lock:  # once, as it may have to wait for a change each time
                self._require_unchanged()
                found += [self._matches(*pair, count, least) for pair in pairs]
        return found

    def _matches(self, scores, people, count, least):
        matches, best = [], dict(zip(people[::-1], scores[::-1], strict=True))
        for person in dict.fromkeys(people):
            if len(matches) == count or best[person] < least:
                break
            name = self._one("SELECT name FROM people WHERE id = ?", person)
            # The name is None if the person was removed after the search began.
            if name is not None:
                # Rounding can make the product exceed 1.
                matches.append(Match(name, min(best[person], 1.0)))
        return matches

    def close(self) -> None:
        """Closes the gallery; every enrollment is already on disk."""
        with self._lock:
            self._stack.close()

    def __exit__(self, *exc):
        """Closes the gallery."""
        self.close()

    def _person(self, name):
        return self._one("SELECT id FROM people WHERE name = ?", name)

    def _faces(self, person):
        return self._one("SELECT count(*) FROM faces WHERE person = ?", person)

    def _unit(self, embeddings):
        array = np.atleast_2d(np.asarray(embeddings, np.float32))
        fits = array.ndim == 2 and array.shape[1] == self.dim and len(array)
        rule = f"embeddings must have the shape [n, {self.dim}], n at least 1"
        require(fits, rule, shape=np.shape(embeddings))
        norms = np.linalg.norm(array.astype(np.float64), axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not norms.all():
            raise ValueError("embeddings must be finite, and none may be all zeros.")
        return (array / norms).astype(np.float32)


def _sum_of(person, name, embedding):
    """Returns a face's checksum, which finds damage but no attack."""
    # Without a person, the name is None, which raises TypeError.
    return zlib.crc32(embedding, zlib.crc32(" ".join((str(person), name)).encode()))


def nearest(
    queries: np.ndarray, rows: np.ndarray, owner: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the people with the largest dot products, by exact search in blocks.

    Args:
        queries: float32 `[q, dim]`.
        rows: float32 `[n, dim]`.
        owner: int `[n]`, the person of each row; rows of 0 are not searched.
        count: maximum number of people to find for each query.

    Returns:
        (scores float32 `[q, k]`, people int `[q, k]`), in descending order of score,
        ties in ascending order of people. A person may occur again with lower scores,
        at most once for each block.
    """
    none = np.zeros((len(queries), 0), np.float32)
    found = [(none, none.astype(owner.dtype))]
    step = max(1, _BLOCK_NUMBERS // rows.shape[1])
    for start in range(0, len(rows), step):
        owners = owner[start : start + step]
        products = queries @ rows[start : start + step].T
        # Only the best of a person's faces counts, however many there are.
        order = np.argsort(owners, kind="stable")
        firsts = np.flatnonzero(np.diff(owners[order], prepend=0))
        if len(firsts) < len(owners):
            products = np.maximum.reduceat(products[:, order], firsts, axis=1)
            owners = owners[order[firsts]]
        # The best of all blocks are among the best of each block.
        if most := min(count, len(owners)):
            places = np.argpartition(products, -most, axis=1)[:, -most:]
            found.append((np.take_along_axis(products, places, 1), owners[places]))
    scores, people = (np.concatenate(parts, 1) for parts in zip(*found, strict=True))
    order = np.lexsort((people, -scores), axis=1)
    return np.take_along_axis(scores, order, 1), np.take_along_axis(people, order, 1)
