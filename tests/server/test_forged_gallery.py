"""Galleries from a stranger: refused, and nothing else is touched."""

import contextlib
import importlib.resources
import os
import shutil
import sqlite3
import struct
import zlib

import numpy as np
import pytest

from plsc_tf.serving.gallery import Gallery
from plsc_tf.serving.server import audit


def sum_of(person, name, face):
    """The checksum of a face, which an attacker makes fit."""
    return zlib.crc32(face, zlib.crc32(f"{person} {name}".encode()))


FIT = """;
UPDATE faces SET checksum =
    (SELECT sum_of(id, name, embedding) FROM people WHERE id = person)"""


# Otherwise, an attacker who can edit the file makes the server recognize nobody, and
# no error says why; hangs it; removes a person with each that is enrolled; answers a
# face with 500; fills the memory with a copy of a long name for each of many faces; or
# makes Python follow pointers of their choice.
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE faces SET embedding = zeroblob(16) WHERE person = 2",
        "UPDATE faces SET embedding = substr(embedding, 1, 8)",
        "UPDATE faces SET embedding = 'text'",
        # Together, they have the right size.
        "UPDATE faces SET embedding = substr(embedding, 1, 12) WHERE person = 1; UPDATE"
        " faces SET embedding = CAST(zeroblob(4) || embedding AS BLOB) WHERE person = 2"
        f"{FIT}",
        "DELETE FROM people WHERE id = 2",
        "UPDATE people SET id = -2 WHERE id = 2; UPDATE faces SET person = -2",
        "UPDATE people SET id = id << 32; UPDATE faces SET person = person << 32",
        "UPDATE people SET name = 'c' WHERE id = 2",
        # It could be enrolled, and then the gallery was damaged.
        "INSERT INTO people (id, name) VALUES (-3, 'c')",
        # SQLite has no number for another person, and calls that a full disk.
        "UPDATE sqlite_sequence SET seq = 9223372036854775807",
        f"UPDATE people SET id = {2**63 - 1} WHERE id = 2; "
        f"UPDATE faces SET person = {2**63 - 1} WHERE person = 2{FIT}",
        f"UPDATE people SET name = x'61' WHERE id = 1{FIT}",
        f"UPDATE people SET name = char(0) || printf('%.1024c', 'a') WHERE id = 1{FIT}",
        "UPDATE faces SET person = 1",
        "UPDATE faces SET checksum = checksum + 1 WHERE person = 2",
        "UPDATE faces SET checksum = NULL",
        "DROP TABLE people; CREATE VIEW people AS WITH RECURSIVE n(id) AS "
        "(SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 'a' AS name FROM n",
        "CREATE TRIGGER t AFTER INSERT ON faces BEGIN DELETE FROM people; END",
        "UPDATE about SET dim = 'many'",
        "UPDATE about SET dim = 2",
        "",
    ],
)
def test_a_changed_file_is_refused(tmp_path, change):
    with Gallery(tmp_path, 4) as gallery:
        gallery.enrol("a", np.eye(4)[0])
        gallery.enrol("b", np.eye(4)[1])
    if not change:
        (tmp_path / "gallery.db").write_bytes(b"no database" * 99)
    else:
        with sqlite3.connect(tmp_path / "gallery.db") as base:
            base.create_function("sum_of", 3, sum_of)
            base.executescript(f"PRAGMA ignore_check_constraints = ON; {change}")
    with pytest.raises(ValueError, match=r"is damaged: .* Restore gallery\.db"):
        Gallery(tmp_path)


# Otherwise, whoever sends a gallery reads and writes other files of its user: SQLite
# follows links, and removes the file that a journal of several databases names.
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *(("lock", "link"), ("lock", "FIFO"), ("gallery.db", "link")),
        *(("audit.log", "link"), ("audit.log", "FIFO"), ("lock", "hard link")),
        ("gallery.db-journal", "journal"),
    ],
)
def test_a_gallery_touches_no_file_elsewhere(tmp_path, name, kind):
    with Gallery(tmp_path / "people", 4) as gallery:
        gallery.enrol("a", np.eye(4)[0])
    place, private = tmp_path / "people" / name, tmp_path / "private"
    private.write_text("thesis")
    if kind == "journal":
        page, named, end = 4096, bytes(private), bytes.fromhex("d9d505f920a163d7")
        pages = (tmp_path / "people/gallery.db").stat().st_size // page
        header = end + struct.pack(">5I", 0, 0, pages, 512, page)
        facts = struct.pack(">2I", len(named), sum(named))
        lock_page = struct.pack(">I", 2**30 // page + 1)
        place.write_bytes(header.ljust(512, b"\0") + lock_page + named + facts + end)
    else:
        place.unlink(missing_ok=True)
        make = {"link": place.symlink_to, "hard link": place.hardlink_to}
        make.get(kind, lambda _: os.mkfifo(place))(private)
    with pytest.raises(ValueError, match="no link or FIFO|its journal is foreign"):
        Gallery(tmp_path / "people")
    assert private.read_text() == "thesis"
    assert private.stat().st_mode & 0o777 != 0o600


# After a crash, it would undo a backup that is put in the place of gallery.db.
@pytest.mark.parametrize(("later", "pages"), [(0, 0), (1, 0), (0, 2**32 - 1)])
def test_the_journal_of_another_database_is_refused(tmp_path, later, pages):
    path, page = tmp_path / "gallery.db", 4096
    with Gallery(tmp_path, 4) as gallery:
        gallery.enrol("ada", np.eye(4)[0])
        backup = path.read_bytes()
        for number in range(later):
            gallery.enrol(f"bob{number}", np.eye(4)[1])
            gallery.remove("ada")
    magic, first = bytes.fromhex("d9d505f920a163d7"), path.read_bytes()[:page]
    pages = pages or len(backup) // page
    header = magic + struct.pack(">5I", 1, 0, pages, 512, page)
    record = struct.pack(">I", 1) + first + bytes(4)
    (tmp_path / "gallery.db-journal").write_bytes(header.ljust(512, b"\0") + record)
    path.write_bytes(backup)
    if later or pages == 2**32 - 1:  # the file would have 16 terabytes
        with pytest.raises(ValueError, match="journal of another gallery.db"):
            Gallery(tmp_path)
        assert path.read_bytes() == backup
        (tmp_path / "gallery.db-journal").unlink()
    with Gallery(tmp_path) as gallery:
        assert gallery.people() == {"ada": 1}


# SQLite's check of integrity goes down each level by a call, and ended the server. If
# all children of a page are the same, 60 to the 10th rows were counted.
@pytest.mark.parametrize(
    ("levels", "children", "error"),
    [(60_000, 0, "is damaged: database disk image"), (10, 60, "interrupted")],
)
def test_a_table_of_many_levels_is_refused(tmp_path, levels, children, error):
    path, page = tmp_path / "gallery.db", 512
    schema = importlib.resources.files("plsc_tf.serving").joinpath("gallery.sql")
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA page_size = {page}")
        base.executescript(schema.read_text() + "INSERT INTO faces VALUES (1, 'x', 0)")
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'faces'"
        (root,) = base.execute(query).fetchone()
    data = bytearray(path.read_bytes())
    first, place = len(data) // page + 1, slice((root - 1) * page, root * page)
    leaf = data[place]

    def inner(child):
        if children:
            last = struct.pack(">I", child)
            return page_of(5, [last + b"\1"] * children, last)
        # A page with a right child only.
        return struct.pack(">BHHHBI", 5, 0, 0, page, 0, child).ljust(page, b"\0")

    data[place] = inner(first)
    data += b"".join(inner(first + k + 1) for k in range(levels - 1)) + leaf
    data[28:32] = struct.pack(">I", len(data) // page)
    path.write_bytes(data)
    with pytest.raises((OSError, ValueError), match=error):
        Gallery(tmp_path, 4)


# A backup would lack the faces, and those that are removed would stay on the disk.
def test_a_gallery_with_another_journal_gets_the_usual_one(tmp_path):
    Gallery(tmp_path, 4).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "gallery.db")) as base:
        base.execute("PRAGMA journal_mode = WAL")
    with Gallery(tmp_path) as gallery:
        gallery.enrol("ada", np.eye(4)[0])
        assert not (tmp_path / "gallery.db-wal").exists()
        shutil.copy(tmp_path / "gallery.db", tmp_path / "backup")
    (tmp_path / "backup").rename(tmp_path / "gallery.db")
    assert Gallery(tmp_path).people() == {"ada": 1}


# The owner of the file reads the faces that are enrolled later, and can add others.
@pytest.mark.parametrize("folder", [True, False])
def test_a_gallery_of_another_user_is_refused(tmp_path, monkeypatch, folder):
    Gallery(tmp_path, 4).close()
    if os.geteuid() == 0:
        os.chown(tmp_path if folder else tmp_path / "gallery.db", 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(ValueError, match="another user"):
        Gallery(tmp_path)


# Otherwise, who exchanges the file after the start writes into another one.
def test_the_audit_log_follows_no_link(tmp_path):
    (tmp_path / "audit.log").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="audit.log"):
        audit.open_log(str(tmp_path))
    assert not (tmp_path / "other").exists()


def page_of(kind, cells, last=b""):
    """A page of SQLite's tree of tables, of 512 bytes; see its file format, 1.6."""
    starts = [512 - len(cells[0]) * number for number in range(1, len(cells) + 1)]
    head = struct.pack(">B2xHHx", kind, len(cells), starts[-1]) + last
    head += struct.pack(f">{len(cells)}H", *starts)
    return head.ljust(starts[-1], b"\0") + b"".join(reversed(cells))


# SQLite read the list of tables for ever: the server did not start, nor end by Ctrl-C.
def test_a_list_of_tables_without_an_end_is_refused(tmp_path):
    with Gallery(tmp_path / "people", 4):
        pass
    path, name = tmp_path / "people/gallery.db", "sqlite_autoindex_people_1"
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.executescript("PRAGMA page_size = 512; VACUUM")
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = base.execute(query, [name]).fetchone()
    data = path.read_bytes()
    assert data[100] == 5  # the list has several pages
    pages = len(data) // 512
    row = bytes([6, 23, 63, 25, 1, 0]) + f"index{name}people{chr(root)}".encode()
    tree = [page_of(13, [bytes([len(row), 100]) + row])]
    for number in range(pages + 1, pages + 11):
        child = struct.pack(">I", number)
        tree.append(page_of(5, [child + b"Z"] * 60, child))
    head = data[:28] + struct.pack(">I", pages + 11) + data[32:108]
    head += struct.pack(">I", pages + 11) + data[112:512]
    path.write_bytes(head + data[512:] + b"".join(tree))
    with pytest.raises(OSError, match="interrupted"):
        Gallery(tmp_path / "people")
