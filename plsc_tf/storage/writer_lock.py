"""One writer per folder, on any store, also when processes are killed.

The same rules hold on local disks, NFS, HDFS and object stores, so kernel locks, which
some of these lack, are not used. All that is relied on: who lists a folder sees every
file whose write ended before. Local disks and HDFS do so, S3 since December 2020, GCS
and Azure too. No operation needs to be atomic.

1. A process writes a claim, a small file of its own, and then lists the folder.
2. It may write once its list holds no other claim. Of two processes the one whose claim
   was written last sees the other's, so never both may.
3. Of two that still wait the one with the smaller token stays, so one of them gets it.
4. Claims of processes that are gone are removed. On the same machine the kernel knows.
   Those elsewhere are watched: a process renews its claim every `renew_s`, and one
   whose claim does not change for `lease_s` counts as dead. Contents are compared, and
   the watcher's monotonic clock tells the time: wall clocks, which differ and jump, do
   not matter.
5. A process that slept for too long finds its claim gone, or another writer, before it
   writes again: see `check`.
"""

import contextlib
import datetime
import os
import re
import secrets
import socket
import threading
import time

from absl import logging

from plsc_tf.storage import claims, files
from plsc_tf.storage.paths import local_path

PREFIX = ".writer-"
# What `catalog` and uploads leave alone.
PATTERN = f"{PREFIX}*"
_NAME = re.compile(rf"{re.escape(PREFIX)}([0-9a-f]{{16}})")
RENEW_S, LEASE_S = 10.0, 60.0
_POLL_S = 0.1
_ONCE = files.Retry(tries=1, limit_s=10.0)
# HDFS lets a claim that is being renewed be read while it is empty.
_SOON = files.Retry(tries=5, first_wait_s=0.1, limit_s=10.0)


class FolderInUseError(RuntimeError):
    """Another process writes into the folder; the message names it."""


class WriterLock:
    """The right to write into a folder, which one process has at a time.

        with WriterLock() as lock:
            lock.acquire("runs/ms1m")

    A process that is killed leaves nothing behind that stops the next one. On the same
    machine that one begins at once, on another one after `lease_s`.

    Args:
        advice: sentence that ends the error: how to go on where another one writes.
        machine: name of this machine; None: that of the running kernel.
        renew_s: seconds between two signs of life.
        lease_s: seconds without one after which a writer elsewhere counts as dead.
    """

    def __init__(self, advice="", *, machine=None, renew_s=RENEW_S, lease_s=LEASE_S):
        self._advice = advice
        self._machine = machine or claims.machine()
        self._renew_s, self._lease_s = renew_s, lease_s
        self._folder, self._kept = None, False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()

    @property
    def held(self):
        """Whether this process has the right to write, as far as it knows."""
        return self._folder is not None

    def acquire(self, folder):
        """Takes the right to write into a folder, which is made if it is missing.

        Raises:
            FolderInUseError: another process, or another lock of this one, has it.
            OSError: the folder cannot be written to.
        """
        if self.held:
            raise ValueError(f"This lock is that of {self._folder} already.")
        self._made = not files.exists(folder)
        files.make_dirs(folder)
        self._token = secrets.token_hex(8)
        self._path = files.join(folder, PREFIX + self._token)
        self._owner = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC",
            "folder": claims.place(folder),
            **claims.process(self._machine),
        }
        self._state, self._beat, self._lost = "waiting", 0, ""
        self._buried, self._written, self._renewed = set(), False, _now()
        self._busy, self._end = threading.Lock(), threading.Event()
        self._folder = folder
        try:
            self._write(renewed=False)
            self._thread = threading.Thread(
                target=self._keep_alive, name="plsc_tf-lock", daemon=True
            )
            self._thread.start()
            self._wait_for_the_others()
        except BaseException:
            self.release()
            raise

    @contextlib.contextmanager
    def holding(self, folder):
        """Has the right during the block; takes it for that if it is not held."""
        if self.held:
            yield
            return
        self.acquire(folder)
        try:
            yield
        finally:
            self.release()

    def check(self):
        """Makes sure that this process still is the writer; call it before a save.

        Raises:
            FolderInUseError: another one took over, as this one gave no sign of life.
        """
        # Nobody takes over within the lease, so that a save need not wait for a store
        # that is slow to take the next sign of life.
        if _now() - self._renewed > self._lease_s / 2:
            self._renew()
        if self._lost:
            raise FolderInUseError(self._lost)

    def release(self):
        """Gives the right up; does nothing where it is not held."""
        if not self.held or self._kept or self._owner["pid"] != os.getpid():
            return  # a forked child does not give up its parent's
        self._end.set()
        with self._busy:
            folder, self._folder = self._folder, None
            try:
                if files.exists(self._path, _ONCE):
                    files.remove(self._path, _ONCE)
            except OSError as error:
                logging.warning("Could not remove the lock %s: %s", self._path, error)
        if self._made and files.is_local(folder):
            with contextlib.suppress(OSError):  # it is not empty
                os.rmdir(local_path(folder))

    def keep(self):
        """Keeps the right until the process ends, as threads may still write."""
        self._kept = True

    def _wait_for_the_others(self):
        """Returns once there is no other claim that counts."""
        watched, told = {}, False
        while True:
            others = list(self._others())
            for token, raw in others:
                self._judge(token, raw, watched)
            others = [token for token, _ in others if token not in self._buried]
            if not others and files.exists(self._path, _ONCE):
                break
            if not others:  # taken for dead, as this process was stopped for long
                with self._busy:
                    self._write(renewed=False)
                continue
            if not told and any(not watched[token].certain for token in others):
                told = True
                logging.info(
                    "Waiting up to %g s to see whether %s still writes into %s.",
                    self._lease_s,
                    claims.describe(watched[others[0]].owner),
                    self._folder,
                )
            time.sleep(min(_POLL_S, self._renew_s))
        with self._busy:
            self._state = "writing"
            self._write()

    def _judge(self, token, raw, watched):
        """Buries a claim of the dead; raises where one of the living goes first."""
        seen = watched.setdefault(token, claims.Watched(raw, self._owner))
        seen.look(raw)
        if seen.dead(self._lease_s):
            logging.info("%s is gone; its lock ends.", claims.describe(seen.owner))
            self._buried.add(token)
            with contextlib.suppress(FileNotFoundError):  # another one was quicker
                files.remove(files.join(self._folder, PREFIX + token))
        elif seen.alive and (seen.owner["state"] == "writing" or token < self._token):
            raise FolderInUseError(
                f"{self._folder} is in use: {claims.describe(seen.owner)} has been "
                f"writing into it since {seen.owner['since']}. {self._advice}".rstrip()
            )

    def _others(self):
        """Yields (token, content) of the claims of others."""
        for name in files.list_dir(self._folder, _ONCE):
            match = _NAME.fullmatch(name)
            if not match or match[1] == self._token:
                continue
            try:
                yield match[1], files.read(files.join(self._folder, name), retry=_SOON)
            except FileNotFoundError:
                continue  # given up meanwhile

    def _write(self, renewed=True):
        """Writes this process's claim with a new sign of life."""
        self._beat += 1
        self._written = False
        claim = {**self._owner, "state": self._state, "beat": self._beat}
        begun = _now()
        claims.write(self._path, claim, _ONCE, renewed)
        self._written, self._renewed = True, begun

    def _keep_alive(self):
        while not self._end.wait(self._renew_s):
            self._renew()

    def _renew(self):
        """Gives a sign of life, unless the folder has become another's."""
        with self._busy:
            if self._end.is_set() or self._lost:
                return
            try:
                self._lost = self._loss()
                if not self._lost:
                    self._write()
            except OSError as error:
                # Saves fail as well while the store does.
                logging.warning("Could not renew the lock %s: %s", self._path, error)
        if self._lost:
            logging.error("%s", self._lost)

    def _loss(self):
        """Why this process is not the writer any more; empty while it is."""
        problem = ""
        if self._written and not files.exists(self._path, _ONCE):
            problem = f"its lock {self._path} was removed"
        for token, raw in self._others():
            owner = claims.read(raw)
            if token in self._buried or not owner or owner["state"] != "writing":
                continue
            problem = f"{claims.describe(owner)} took over on {owner['since']}"
        if not problem or self._state != "writing":
            return ""
        return (
            f"This process may no longer write into {self._folder}: {problem}, after "
            f"{self._lease_s:g} s without a sign of life."
        )


def _now():
    """Seconds of a clock that also runs while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
