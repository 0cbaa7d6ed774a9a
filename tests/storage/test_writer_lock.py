"""A folder has one writer, whoever is killed and whatever clocks do."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

from plsc_tf.storage import files
from plsc_tf.storage.writer_lock import FolderInUseError, WriterLock

ROOT = pathlib.Path(__file__).parents[2]
ROUNDS = ROOT / "tests" / "storage" / "lock_rounds.py"
# Wall clocks that jump by a day, back and forth, at every look.
JUMPING = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
  static int looks;
  int failed = syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += (looks++ % 3 - 1) * 86400;
  return failed;
}
"""


def play(folder, rounds, machines, **environment):
    """What was seen in so many rounds of `lock_rounds.py`."""
    done = subprocess.run(
        [sys.executable, str(ROUNDS), str(folder), str(rounds), machines],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(rounds):
    return dict.fromkeys(
        (
            "1 of 2 in",
            "the refused names the writer",
            "the next one: in",
            "0 claims left",
        ),
        rounds,
    )


@pytest.fixture(scope="module")
def jumping(tmp_path_factory):
    """Environment of processes whose wall clock jumps."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = tmp_path_factory.mktemp("jumping")
    (folder / "jumping.c").write_text(JUMPING)
    library = folder / "jumping.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", library, folder / "jumping.c"], check=True
    )
    environment = {"LD_PRELOAD": str(library)}
    code = "import time; print(abs(time.time() - time.time()) > 80000)"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    assert said == b"True\n"
    return environment


@pytest.mark.parametrize(("machines", "rounds"), [("one", 10), ("two", 1)])
def test_one_of_two_gets_in_and_a_killed_one_blocks_nobody(tmp_path, machines, rounds):
    assert play(tmp_path, rounds, machines) == expected(rounds)


@pytest.mark.parametrize(("machines", "rounds"), [("one", 10), ("two", 1)])
def test_clocks_that_jump_change_nothing(tmp_path, jumping, machines, rounds):
    found = play(tmp_path, rounds, machines, **jumping)
    assert found == expected(rounds)


@pytest.mark.slow
@pytest.mark.parametrize("machines", ["one", "two"])
def test_a_hundred_times(tmp_path, jumping, machines):
    found = play(tmp_path, 100, machines, **jumping)
    assert found == expected(100)


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
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
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
        end = time.monotonic() + 20
        while path.read_bytes() == before and time.monotonic() < end:
            time.sleep(0.01)
        after = path.read_bytes()
        assert after != before and len(after) == len(before) <= 4096
