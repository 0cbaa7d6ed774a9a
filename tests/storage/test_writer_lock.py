"""A folder has one writer, whoever is killed."""

import json
import os
import shutil
import threading
import time

import pytest

from plsc_tf.storage import files
from plsc_tf.storage.writer_lock import FolderInUseError, WriterLock
from tests import programs
from tests.data.conftest import bounded
from tests.marks import slow
from tests.waiting import wait_for


@pytest.mark.parametrize(
    ("machines", "rounds"),
    [("one", 10), ("two", 1), slow("one", 100), slow("two", 100)],
)
def test_one_of_two_gets_in_and_a_killed_one_blocks_nobody(tmp_path, machines, rounds):
    words = "-m", "tests.storage.lock_rounds", tmp_path, rounds, machines
    seen = json.loads(programs.run(*words, timeout=580).out)
    expected = "1 of 2 in", "the refused names the writer", "the next one: in"
    assert seen == dict.fromkeys([*expected, "0 claims left"], rounds)


@pytest.fixture(params=["one", "two"])
def machines(request):
    """Where two locks are: on one machine, which is this one, or on two."""
    return [None, None] if request.param == "one" else ["a", "b"]


def lock(machine, **options):
    return WriterLock("Go elsewhere.", machine=machine, renew_s=0.05, **options)


def test_the_second_ends_at_once_and_says_who_writes(root, machines):
    folder = f"{root}/run"
    with lock(machines[0]) as first, lock(machines[1]) as second:
        first.acquire(folder)
        with pytest.raises(FolderInUseError) as caught:
            second.acquire(folder)
        said = str(caught.value)
        assert folder in said and said.endswith("UTC. Go elsewhere.")
        assert f"process {os.getpid()} on {os.uname().nodename}" in said
        assert not second.held
        first.check()
        first.release()
        second.acquire(folder)
        with second.holding(folder):
            second.check()
        assert second.held
    assert not files.exists(folder) or files.list_dir(folder) == []


def test_a_folder_that_is_copied_is_free(tmp_path, machines):
    with lock(machines[0]) as first, lock(machines[1], lease_s=0.5) as second:
        first.acquire(tmp_path / "run")
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        second.acquire(tmp_path / "copy")
        second.check()
        first.check()


# Whoever may write one into the folder would end every start with a traceback.
_KEYS = ("host", "since", "folder", "machine", "start", "state")
_FORGED = [json.dumps(dict.fromkeys(_KEYS, "a") | {"pid": n}) for n in ("a", 10**30)]


@pytest.mark.parametrize("claim", ['{"host": "a"}', "[1]", "[" * 1024, *_FORGED])
def test_a_claim_that_cannot_be_read_counts_until_the_lease_ends(tmp_path, claim):
    path = tmp_path / f".writer-{'0' * 16}"
    path.write_text(claim)
    with WriterLock(machine="a", renew_s=0.05, lease_s=0.2) as lock:
        lock.acquire(str(tmp_path))
        assert not path.exists()
        lock.check()


# On HDFS, a claim is empty for a moment while it is renewed.
def test_a_claim_may_be_rewritten_while_it_is_read(tmp_path):
    claim = tmp_path / f".writer-{'0' * 16}"

    def rewrite():
        for number in range(3000):
            claim.write_bytes(bytes(number % 2 * 1024))
            time.sleep(0.0001)

    thread = threading.Thread(target=rewrite)
    thread.start()
    with WriterLock(machine="a", renew_s=0.001, lease_s=0.2) as lock:
        lock.acquire(str(tmp_path))
    thread.join()


# Whoever may write into the folder would choose the file that is overwritten.
def test_a_renewal_follows_no_link(tmp_path):
    (tmp_path / "precious").write_text("mine")
    with WriterLock(renew_s=0.05) as lock:
        lock.acquire(str(tmp_path / "run"))
        (claim,) = (tmp_path / "run").iterdir()
        (tmp_path / "link").symlink_to(tmp_path / "precious")
        (tmp_path / "link").rename(claim)
        time.sleep(0.3)
        assert (tmp_path / "precious").read_text() == "mine"


# Whoever may write into the folder would fill the memory, with a file without content,
# or keep others out, by a link to a file that changes all the time.
def test_a_claim_of_any_size_takes_no_memory(tmp_path):
    with open(tmp_path / f".writer-{'0' * 16}", "wb") as file:
        file.truncate(1 << 28)
    (tmp_path / f".writer-{'1' * 16}").symlink_to("/proc/uptime")
    os.mkfifo(tmp_path / f".writer-{'2' * 16}")
    (tmp_path / f".writer-{'3' * 16}").mkdir()
    with bounded(1 << 24), lock("a", lease_s=0.2) as one:
        one.acquire(str(tmp_path))


def test_who_slept_while_another_took_over_does_not_write(root):
    """A machine that was cut off from the store for longer than the lease."""
    folder = f"{root}/run"
    # One that gives no sign of life within the lease.
    with WriterLock(machine="a", renew_s=60, lease_s=0.5) as sleeper:
        sleeper.acquire(folder)
        with lock("b", lease_s=0.5) as second:
            second.acquire(folder)
            with pytest.raises(FolderInUseError, match="may no longer write into"):
                sleeper.check()
            second.check()
        # Also when that one has ended meanwhile.
        with pytest.raises(FolderInUseError, match="may no longer write into"):
            sleeper.check()


def test_a_forked_child_neither_keeps_nor_ends_the_lock(tmp_path):
    code = f"""
import os, sys, time
from plsc_tf.storage.writer_lock import WriterLock
with WriterLock() as lock:
    lock.acquire({str(tmp_path)!r})
    child = os.fork()
    if child:
        print(child, flush=True)
        time.sleep(60)
    else:
        lock.release()
        time.sleep(60)
"""
    parent = programs.start("-c", code)
    child = int(parent.stdout.readline())
    try:
        with pytest.raises(FolderInUseError, match=f"process {parent.pid} on"):
            lock(None).acquire(tmp_path)
        parent.kill()
        parent.wait()
        with lock(None) as following:
            following.acquire(tmp_path)
    finally:
        os.kill(child, 9)


def test_renewing_is_a_small_file_that_does_not_grow(tmp_path):
    with lock(None) as one:
        one.acquire(tmp_path)
        [path] = tmp_path.iterdir()
        before = path.read_bytes()
        wait_for(lambda: path.read_bytes() != before)
        assert len(path.read_bytes()) == len(before) <= 4096
