"""The gallery finds the nearest people exactly, and loses nothing."""

import concurrent.futures
import errno
import random
import shutil
import sqlite3
import threading
import tracemalloc

import numpy as np
import pytest

from plsc_tf.serving.gallery import Gallery, nearest
from tests import programs
from tests.data.conftest import bounded
from tests.small_disk import mounted


def unit(array):
    array = np.asarray(array, np.float64)
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


def test_search_is_exact_block_by_block():
    rng = np.random.default_rng(0)
    # A block has four million numbers, of which this is several.
    rows = rng.normal(size=(10_000, 1024)).astype(np.float32)
    queries = rng.normal(size=(9, 1024)).astype(np.float32)
    products = queries.astype(np.float64) @ rows.T
    single = np.arange(1, len(rows) + 1)
    several = rng.integers(0, 3000, len(rows))  # 0: removed
    for owner in (single, several, np.sort(several), 0 * single):
        scores, people = nearest(queries, rows, owner, 7)
        for row, found, dots in zip(scores, people, products, strict=True):
            best = np.full(len(rows) + 1, -np.inf)
            np.maximum.at(best, owner[owner > 0], dots[owner > 0])
            expected = [one for one in np.argsort(-best)[:7] if best[one] > -np.inf]
            assert [*dict.fromkeys(found.tolist())][:7] == expected
            assert (np.diff(row) <= 0).all()
            firsts = [found.tolist().index(one) for one in expected]
            np.testing.assert_allclose(row[firsts], best[expected], rtol=1e-4)


def test_people_are_found_once_each_and_again_after_closing(tmp_path):
    rng = np.random.default_rng(1)
    faces = {f"person {i}": rng.normal(size=(1 + i % 4, 16)) for i in range(30)}
    query = rng.normal(size=16)
    best = {name: (unit(rows) @ unit(query)).max() for name, rows in faces.items()}
    expected = sorted(best, key=best.get, reverse=True)[:5]
    with Gallery(tmp_path, 16) as gallery:
        for name, rows in faces.items():
            assert gallery.enrol(name, rows) == len(rows)
    with Gallery(tmp_path) as gallery:
        (found,) = gallery.identify(query, count=5)
        assert [match.name for match in found] == expected
        scores = [match.score for match in found]
        np.testing.assert_allclose(scores, [best[n] for n in expected], atol=1e-6)
        (some,) = gallery.identify(query, count=5, threshold=best[expected[2]] - 1e-2)
        assert [match.name for match in some][:3] == expected[:3]
        assert len(some) < 5 or best[expected[4]] > best[expected[2]] - 2e-2
        assert len(gallery) == sum(map(len, faces.values()))
        assert len(gallery.people()) == 30 and gallery.people()["person 3"] == 4


def test_removed_people_take_no_memory(tmp_path):
    # Who may enroll and remove would fill it, and slow down all searches.
    rows = np.random.default_rng(0).normal(size=(4000, 64))
    with Gallery(tmp_path, 64) as gallery:
        gallery.enrol("ada", rows[0])
        tracemalloc.start()
        try:
            for number in range(10):
                gallery.enrol(f"guest {number}", rows)
                assert gallery.remove(f"guest {number}") == 4000
            left = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert left < 500_000 and len(gallery) == 1
        assert gallery.identify(rows[0])[0][0].name == "ada"


def test_removed_people_are_never_found(tmp_path):
    eye = np.eye(4)
    with Gallery(tmp_path, 4) as gallery:
        for name, row in zip("abcd", eye, strict=True):
            gallery.enrol(name, row)
        assert gallery.remove("b") == 1
        assert gallery.remove("b") == 0
        assert [m.name for m in gallery.identify(eye[1], count=9)[0]] == ["a", "c", "d"]
        assert gallery.enrol("b", eye[3]) == 1
        assert gallery.remove("d") == 1
        assert gallery.identify(eye[3])[0][0].name == "b"
    with Gallery(tmp_path) as gallery:
        assert gallery.people() == {"a": 1, "c": 1, "b": 1}
        assert gallery.identify(eye[3])[0][0].name == "b"
        assert [m.name for m in gallery.identify(eye[1], count=9)[0]] == ["a", "c", "b"]


def test_many_faces_of_one_person_do_not_cost_searches(tmp_path):
    # Who may enroll could make every search take half a minute,
    faces = np.random.default_rng(0).normal(size=(4000, 64)).astype(np.float32)
    assert nearest(faces[:1], faces, np.arange(4000) % 2 + 1, 100)[0].shape == (1, 2)
    # or gigabytes.
    rng = np.random.default_rng(0)
    queries = rng.normal(size=(64, 64))
    with Gallery(tmp_path, 64) as gallery:
        for name, faces in (("ada", 8000), ("bob", 1)):
            gallery.enrol(name, rng.normal(size=(faces, 64)))
        with bounded(22e6):
            found = gallery.identify(queries, count=100)
        for query, matches in zip(queries[::9], found[::9], strict=True):
            (alone,) = gallery.identify(query, count=100)
            assert [one.name for one in matches] == [one.name for one in alone]


ENROL = """
import sys
import numpy as np
from plsc_tf.serving.gallery import Gallery
gallery = Gallery(sys.argv[1], 32)
for number in range(10**9):
    rng = np.random.default_rng(number)
    gallery.enrol(f"n{number}", rng.normal(size=(50, 32)))
    print(number, flush=True)
"""


def test_nothing_is_lost_or_half_there_after_a_kill(tmp_path):
    process = programs.start("-c", ENROL, tmp_path)
    try:
        done = -1
        while done < 10:
            done = int(process.stdout.readline())
    finally:
        process.kill()
    rest = process.stdout.read().split()
    programs.end(process)
    done = int(rest[-1]) if rest else done
    with Gallery(tmp_path) as gallery:
        people = gallery.people()
        assert set(people.values()) == {50}
        assert done + 1 <= len(people) <= done + 2
        for number in range(len(people)):
            rows = np.random.default_rng(number).normal(size=(50, 32))
            ((match,),) = gallery.identify(rows[49])
            assert match.name == f"n{number}"
            assert match.score == pytest.approx(1.0)


def test_a_full_disk_changes_nothing(tmp_path):
    rows = np.random.default_rng(0).normal(size=(10_000, 64))
    with mounted(tmp_path, "1m") as folder, Gallery(folder, 64) as gallery:
        gallery.enrol("a", np.eye(64)[:1])
        with pytest.raises(OSError, match="disk is full") as error:
            gallery.enrol("b", rows)
        assert error.value.errno == errno.ENOSPC
        assert gallery.people() == {"a": 1} and len(gallery) == 1
        gallery.enrol("c", np.eye(64)[1:2])
        assert gallery.identify(np.eye(64)[1])[0][0].name == "c"
        gallery.close()
        # What is there can be read while the disk is full.
        (folder / "other").write_bytes(bytes(shutil.disk_usage(folder).free))
        with Gallery(folder) as again:
            assert again.people() == {"a": 1, "c": 1}
            with pytest.raises(OSError, match="disk is full"):
                again.enrol("d", rows[:99])


def test_threads_enrol_remove_and_search_at_the_same_time(tmp_path):
    fixed = np.random.default_rng(3).normal(size=(20, 16))
    with Gallery(tmp_path, 16) as gallery:
        for number, row in enumerate(fixed):
            gallery.enrol(f"fixed {number}", row)
        ended = threading.Event()

        def change(seed):
            own = np.random.default_rng(seed)
            while not ended.is_set():
                gallery.enrol(f"guest {seed}", own.normal(size=(3, 16)))
                gallery.remove(f"guest {seed}")

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            changes = [pool.submit(change, seed) for seed in range(2)]
            try:
                found = [*pool.map(gallery.identify, [*fixed] * 6)]
            finally:
                ended.set()
        names = [match.name for ((match,),) in found]
        assert names == [f"fixed {number}" for number in range(20)] * 6
        assert [one.result() for one in changes] == [None, None]
        assert len(gallery) == 20


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="requires dim"):
        Gallery(tmp_path / "a")
    with Gallery(tmp_path / "b", 4, model="m1") as gallery:
        with pytest.raises(BlockingIOError, match="another process"):
            Gallery(tmp_path / "b")
        for wrong in (np.zeros(4), np.full(4, np.nan), np.ones(3), np.ones((0, 4))):
            with pytest.raises(ValueError, match="embeddings"):
                gallery.enrol("x", wrong)
        for wrong in ("", "a" * 257):
            with pytest.raises(ValueError, match="name must be a string of 1 to 256"):
                gallery.enrol(wrong, np.ones(4))
        # Their removal would keep others from being identified for seconds.
        with pytest.raises(ValueError, match="at most 10000 faces"):
            gallery.enrol("x", np.ones((10_001, 4)))
        with pytest.raises(ValueError, match="count"):
            gallery.identify(np.ones(4), count=0)
        # With NaN, a stranger would be the nearest person, whatever the cosine.
        for wrong in (np.nan, np.inf, -np.inf):
            with pytest.raises(ValueError, match="threshold finite or None. Received"):
                gallery.identify(np.ones(4), threshold=wrong)
        # Another user of the machine would read the people's names and faces, or put a
        # gallery of their own in the place of this one.
        assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
        # Who may read the lock's file could hold the lock, so that no server starts.
        for name in ("gallery.db", "lock"):
            assert (tmp_path / "b" / name).stat().st_mode & 0o777 == 0o600
        assert gallery.identify(np.ones(4)) == [[]]
    with pytest.raises(ValueError, match="has dim=4"):
        Gallery(tmp_path / "b", 5)
    with pytest.raises(ValueError, match="a different model"):
        Gallery(tmp_path / "b", 4, model="m2")


# Otherwise, the next person is stored, but the gallery does not open again.
def test_any_number_of_a_person_is_read_again(tmp_path):
    with Gallery(tmp_path, 4) as gallery:
        gallery.enrol("a", np.eye(4)[0])
    for name, place, last in ("b", 1, "1 << 40"), ("c", 2, "(1 << 62) - 2"):
        with sqlite3.connect(tmp_path / "gallery.db") as base:
            base.execute(f"UPDATE sqlite_sequence SET seq = {last}")
        with Gallery(tmp_path) as gallery:
            gallery.enrol(name, np.eye(4)[place])
    with Gallery(tmp_path) as gallery, pytest.raises(ValueError, match="No number is"):
        gallery.enrol("d", np.eye(4)[1])
    with Gallery(tmp_path) as gallery:
        assert gallery.identify(np.eye(4)[1])[0][0].name == "b"


# Otherwise, one bad sector lets a stranger in, or makes a person a stranger.
def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path):
    rows = np.random.default_rng(4).normal(size=(40, 64))
    names = [f"person {number}" for number in range(40)]
    dice, refused = random.Random(0), 0
    path = tmp_path / "gallery.db"
    with Gallery(tmp_path, 64, model="m") as gallery:
        for name, row in zip(names, rows, strict=True):
            gallery.enrol(name, row)
    content = path.read_bytes()
    for _ in range(300):
        flipped = bytearray(content)
        flipped[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(flipped)
        try:
            with Gallery(tmp_path, 64, model="m") as gallery:
                assert list(gallery.people()) == names
                found = gallery.identify(rows)
        except (ValueError, OSError) as error:
            assert str(tmp_path) in str(error)
            refused += 1
        else:
            assert [one[0].name for one in found] == names
    assert refused > 50


# Otherwise, faces get the names of other people.
@pytest.mark.parametrize("how", ["copied", "moved", "alike"])
def test_a_backup_put_into_an_open_gallery_is_noticed(tmp_path, how):
    bob, path, backup = np.eye(4)[1], tmp_path / "gallery.db", tmp_path / "backup"
    with Gallery(tmp_path, 4) as gallery:
        gallery.enrol("ada", np.eye(4)[0])
        shutil.copy(path, backup)
        gallery.enrol("bob", bob)
        if how == "alike":  # SQLite counts as many changes
            with Gallery(tmp_path / "other", 4) as other:
                other.enrol("carl", bob)
                other.enrol("dora", np.eye(4)[0])
            backup = tmp_path / "other/gallery.db"
        backup.rename(path) if how == "moved" else shutil.copy(backup, path)
        enrol, identify = (lambda: gallery.enrol("eve", -bob)), gallery.identify
        for use in enrol, lambda: identify(bob), lambda: gallery.num_people:
            with pytest.raises(OSError, match="another program changed it"):
                use()


# Otherwise, a server whose database was deleted lets nobody in, and no error says why.
@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_a_lost_database_is_not_a_new_gallery(tmp_path, how):
    with Gallery(tmp_path, 4) as gallery:
        gallery.enrol("a", np.eye(4)[0])
    path = tmp_path / "gallery.db"
    kept = path.read_bytes()
    path.unlink() if how == "deleted" else path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"has lost its gallery\.db. Restore"):
            Gallery(tmp_path, 4)
    path.write_bytes(kept)
    with Gallery(tmp_path) as gallery:
        assert gallery.people() == {"a": 1}
