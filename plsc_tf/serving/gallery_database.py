"""The files and the tables of a gallery, which may come from a stranger."""

import contextlib
import importlib.resources
import math
import os
import sqlite3
import stat
import struct

# The files of a gallery, including SQLite's temporary ones.
_ENDS = ("", "-journal", "-wal", "-shm")
_FILES = ("lock", "audit.log", *(f"gallery.db{end}" for end in _ENDS))
# The end of a journal that names a file, which SQLite then removes. Only a transaction
# over several databases writes one.
_OF_SEVERAL = bytes.fromhex("d9d505f920a163d7")
# Pages of a journal in which to look for the first.
_MOST_PAGES = 10_000
# Steps of SQLite's machine to read the list of tables.
_MOST_STEPS = 100_000
# All tables and indexes.
_TREES = (
    *("about", "sqlite_sequence", "people NOT INDEXED", "faces NOT INDEXED"),
    *(
        "people INDEXED BY sqlite_autoindex_people_1",
        "faces INDEXED BY faces_of_person",
    ),
)
_SCHEMA = importlib.resources.files("plsc_tf.serving").joinpath("gallery.sql")


def stamp(folder: str) -> tuple | None:
    """Returns what differs if gallery.db is changed or replaced; None without one."""
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(os.path.join(folder, "gallery.db"))
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None


def foreign_file(folder: str) -> str:
    """Returns what is wrong with a file that leads out of a gallery, or ""."""
    # Volumes of containers may be open to all, so their modes say little.
    if os.stat(folder).st_uid not in (0, os.geteuid()):
        return "is a folder of another user, who can exchange its files"
    for entry in os.scandir(folder):
        if entry.name not in _FILES:
            continue
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            return f"must have no link or FIFO: {entry.name}"
        if status.st_uid not in (0, os.geteuid()):
            return f"has {entry.name} of another user, who can read and change it"
    path = os.path.join(folder, "gallery.db")
    with contextlib.suppress(FileNotFoundError), open(f"{path}-journal", "rb") as file:
        before, least = _of_journal(file)
        file.seek(max(0, os.path.getsize(file.name) - len(_OF_SEVERAL)))
        if file.read() == _OF_SEVERAL:
            return "is damaged: its journal is foreign"
        with open(path, "rb") as base:
            changes = _changes(base)
        # The change that was interrupted may be in the file. SQLite would make the
        # file as large as the journal says.
        other = before is not None and changes not in (before, before + 1)
        if other or least > os.path.getsize(path):
            return "has the journal of another gallery.db: remove gallery.db-journal"
    return ""


def _of_journal(journal):
    """Returns facts about the database of a journal: (number of changes, bytes).

    The first is that in the copy of page 1, None without one. See "The Rollback
    Journal" in SQLite's description of its file format.
    """
    head = journal.read(28)
    pages, sector, size = struct.unpack(">III", head[16:] if head[27:] else bytes(12))
    journal.seek(sector)
    for _ in range(_MOST_PAGES if size else 0):
        if journal.read(4) == b"\0\0\0\1":
            return _changes(journal), pages * size
        journal.seek(size + 4, os.SEEK_CUR)
    return None, pages * size


def _changes(page):
    """Reads a file at page 1; returns SQLite's number of changes to the database."""
    return int.from_bytes(page.read(28)[24:])


def create_tables(base: sqlite3.Connection) -> None:
    """Creates a gallery's missing tables.

    Raises:
        sqlite3.DatabaseError: the database has anything else: a view could run for
            ever, and a trigger could remove people.
    """
    schema = _SCHEMA.read_text(encoding="utf8")
    with contextlib.closing(sqlite3.connect(":memory:")) as model:
        model.executescript(schema)
        query = "SELECT name, type, sql FROM sqlite_master"
        # A forged list of tables could be read for ever.
        base.set_progress_handler(lambda: True, _MOST_STEPS)
        own, found = (set(one.execute(query)) for one in (model, base))
    if not found <= own:
        raise sqlite3.DatabaseError(f"it has {min(found - own)[0]!r:.100}")
    base.executescript(schema)
    # SQLite's check of integrity calls itself for each level of a tree, up to the end
    # of the process. Other queries refuse trees of more than 20 levels. The branches of
    # a forged one may be the same pages; a row takes at least as many bytes as steps.
    # "count(*)" has no steps.
    sizes = (base.execute(f"PRAGMA page_{one}").fetchone() for one in ("count", "size"))
    most = _MOST_STEPS + math.prod(size for (size,) in sizes)
    base.set_progress_handler(lambda: True, most)
    for tree in _TREES:
        base.execute(f"SELECT sum(1) FROM {tree}").fetchone()
    base.set_progress_handler(None, 0)
