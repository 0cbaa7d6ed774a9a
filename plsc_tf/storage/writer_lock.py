"""Ensures that at most one process writes to a folder, even if processes are killed.

The same protocol works on local disks, NFS, HDFS and object stores. It doesn't use
kernel locks, which some of these lack. It relies on one property: a process that lists
a folder sees every file whose write has finished. Local disks and HDFS guarantee this,
as do GCS, Azure and (since December 2020) S3. No operation needs to be atomic.

1. A process writes a claim, a small file with a token, and then lists the folder.
2. It may write to the folder once the list contains no other claim. Of two processes,
   the one whose claim was written last sees the other's claim, so they can never both
   write.
3. If two processes are both waiting, the one with the smaller token keeps its claim, so
   one of them gets the lock.
4. Claims of processes that have ended are removed. For a process on the same machine,
   the kernel is asked. A process elsewhere renews its claim every `renew_s` seconds and
   counts as dead if its claim doesn't change for `lease_s` seconds. The observer
   compares the claim's contents and measures the time with its own monotonic clock,
   because wall clocks differ and jump.
5. A process that was suspended for too long finds that its claim is gone, or that there
   is another writer, before it writes again (see `check`).
"""

import contextlib
import datetime
import functools
import json
import os
import re
import secrets
import socket
import threading
import time

from absl import logging

from plsc_tf.storage import files, local, paths

PREFIX = ".writer-"
# `catalog` and uploads ignore these files.
PATTERN = f"{PREFIX}*"
_NAME = re.compile(rf"{re.escape(PREFIX)}([0-9a-f]{{16}})")
RENEW_S, LEASE_S = 10.0, 60.0
_POLL_S = 0.1
# All claims have the same size: renewing one on a full disk needs no new block.
_CLAIM_BYTES = 1024
_KEYS = {"host", "pid", "since", "folder", "machine", "start", "state"}
_ONCE = files.Retry(tries=1, limit_s=10.0)
# On HDFS, a claim is empty for a moment while it is renewed.
_SOON = files.Retry(tries=5, first_wait_s=0.1, limit_s=10.0)


class FolderInUseError(RuntimeError):
    """Raised if another process is writing to the folder; the message names it."""


class WriterLock(contextlib.AbstractContextManager):
    """Lock that only one process at a time can hold; the holder may write to a folder.

        with WriterLock() as lock:
            lock.acquire("runs/ms1m")

    A killed process does not block the next one, which can start immediately on the
    same machine, and after `lease_s` seconds on another machine. On a remote store, the
    claim of a process that was killed while renewing it is empty, so that the next one
    waits for `lease_s` seconds there, too.

    Args:
        advice: last sentence of the error message; says what to do while another
            process is writing.
        machine: name of this machine, or None to use the kernel's boot ID.
        renew_s: seconds between two renewals of the claim.
        lease_s: seconds without a renewal after which a writer on another machine
            counts as dead.
    """

    def __init__(
        self,
        advice: str = "",
        *,
        machine: str | None = None,
        renew_s: float = RENEW_S,
        lease_s: float = LEASE_S,
    ):
        self._advice, self._machine = advice, machine or _machine()
        self._renew_s, self._lease_s = renew_s, lease_s
        self._folder, self._permanent = None, False

    def __exit__(self, *_):
        self.release()

    @property
    def held(self) -> bool:
        """True if this process holds the lock, as far as it knows."""
        return self._folder is not None

    def acquire(self, folder: str) -> "WriterLock":
        """Acquires the lock of a folder; creates the folder if it is missing.

        Returns:
            this object, which releases the lock at the end of a `with` block.

        Raises:
            FolderInUseError: another process, or another `WriterLock` in this process,
                holds the lock.
            OSError: the folder is not writable.
        """
        self._made_folder = not files.exists(folder)
        files.make_dirs(folder)
        self._token = secrets.token_hex(8)
        self._path = files.join(folder, PREFIX + self._token)
        place = paths.canonical(folder)
        self._claim = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC",
            "folder": os.path.realpath(place) if files.is_local(place) else place,
            "machine": self._machine,
            "start": _start_and_state(os.getpid())[0],
            "state": "waiting",
            "beat": 0,
        }
        self._written, self._lost = False, ""
        self._renewed_at = _awake_or_suspended_s()
        self._mutex, self._end = threading.Lock(), threading.Event()
        self._folder = folder
        try:
            self._write(new=True)
            threading.Thread(
                target=self._keep_renewing, name="plsc_tf-lock", daemon=True
            ).start()
            self._wait_for_others()
        except BaseException:
            self.release()
            raise
        return self

    def holding(self, folder: str) -> contextlib.AbstractContextManager:
        """Holds the lock during a `with` block; keeps it if it was held before."""
        return contextlib.nullcontext() if self.held else self.acquire(folder)

    def check(self) -> None:
        """Checks that this process is still the writer; call it before a save.

        Raises:
            FolderInUseError: another process took over because this one did not renew
                its claim.
        """
        # No process takes over during the lease, so a save doesn't need to wait for a
        # store that is slow to write the next renewal.
        if _awake_or_suspended_s() - self._renewed_at > self._lease_s / 2:
            self._renew()
        if self._lost:
            raise FolderInUseError(self._lost)

    def release(self) -> None:
        """Releases the lock; does nothing if it isn't held."""
        if not self.held or self._permanent or self._claim["pid"] != os.getpid():
            return  # A forked child must not release its parent's lock.
        self._end.set()
        with self._mutex:
            folder, self._folder = self._folder, None
            try:
                files.remove(self._path, _ONCE)
            except FileNotFoundError:
                pass  # Another process took over.
            except OSError as error:
                logging.warning("Could not remove the lock %s: %s", self._path, error)
        if self._made_folder and files.is_local(folder):
            with contextlib.suppress(OSError):  # The folder isn't empty.
                os.rmdir(paths.local_path(folder))

    def keep_until_exit(self) -> None:
        """Keeps the lock until the process ends; use it if threads may still write."""
        self._permanent = True

    def _wait_for_others(self):
        """Waits until no other claim counts; this process is the writer afterwards."""
        seen = {}
        while True:
            if not any([self._may_be_active(*claim, seen) for claim in self._others()]):
                with self._mutex:
                    # The claim is missing if this process was suspended for so long
                    # that another process considered it dead.
                    present = files.exists(self._path, _ONCE)
                    self._claim["state"] = "writing" if present else "waiting"
                    self._write(new=not present)
                if present:
                    return
            time.sleep(min(_POLL_S, self._renew_s))

    def _may_be_active(self, token, raw, seen):
        """Returns whether a claim may be active; removes it if its process has ended.

        Args:
            token: the claim's token.
            raw: the claim's content.
            seen: `{token: (content, time of its last change, whether it ever changed)}`
                of the claims seen so far; updated.

        Raises:
            FolderInUseError: the claim's process is running and has precedence.
        """
        now, owner = time.monotonic(), _parse(raw)
        before, since, renewed = seen.get(token, (raw, now, False))
        if raw != before:
            since, renewed = now, True
        running = self._is_running(owner) if owner else None
        if running is None:
            if token not in seen:
                message = "Waiting up to %g s to see whether %s still writes into %s."
                logging.info(message, self._lease_s, _describe(owner), self._folder)
            expired = now - since > self._lease_s
            running = False if expired else (renewed and owner is not None) or None
        seen[token] = raw, since, renewed
        if running is False:
            logging.info("%s has ended; its lock ends.", _describe(owner))
            with contextlib.suppress(FileNotFoundError):  # Another process removed it.
                files.remove(files.join(self._folder, PREFIX + token))
        elif running and (owner["state"] == "writing" or token < self._token):
            raise FolderInUseError(
                f"{self._folder} is in use: {_describe(owner)} has been writing into "
                f"it since {owner['since']}. {self._advice}".rstrip()
            )
        return running is not False

    def _is_running(self, owner):
        """Returns whether a claim's process runs; None if only renewals can show it."""
        if owner["machine"] != self._claim["machine"]:
            return None
        with contextlib.suppress(PermissionError):  # another user's process
            try:
                os.kill(owner["pid"], 0)
            except ProcessLookupError:
                return False
        start, state = _start_and_state(owner["pid"])
        if not start or not owner["start"]:
            return None
        if start != owner["start"] or state in ("Z", "X"):
            return False
        # If the folder was copied together with the claim, the claim doesn't apply to
        # the copy.
        return True if owner["folder"] == self._claim["folder"] else None

    def _others(self):
        """Yields (token, content) for each claim of another lock."""
        for name in files.list_dir(self._folder, _ONCE):
            match = _NAME.fullmatch(name)
            if not match or match[1] == self._token:
                continue
            # The claim may have been removed since the folder was listed.
            path = files.join(self._folder, name)
            # A link may lead to a file that changes for ever.
            if os.path.islink(paths.local_path(path)):
                continue
            # FIFOs and folders, which are ValueErrors, are no claims either.
            with contextlib.suppress(FileNotFoundError, ValueError):
                with contextlib.closing(files.open_random(path, _SOON)) as claim:
                    yield match[1], claim.read(0, _CLAIM_BYTES)

    def _write(self, new=False):
        """Writes this process's claim with an incremented renewal count."""
        begun, self._written = _awake_or_suspended_s(), False
        self._claim["beat"] += 1
        raw = json.dumps(self._claim).encode().ljust(_CLAIM_BYTES)
        if not files.is_local(self._path):
            files.write(self._path, raw, retry=_ONCE)
        else:
            # A reader sees either the old claim or this one. The claim doesn't need to
            # survive a power failure, because its process doesn't either.
            path = paths.local_path(self._path)
            written, mode = (f"{path}.new", "wb") if new else (path, "r+b")
            with open(written, mode, 0, opener=local.without_links) as file:
                file.write(raw)
            if new:
                os.rename(written, path)
        self._written, self._renewed_at = True, begun

    def _keep_renewing(self):
        while not self._end.wait(self._renew_s):
            self._renew()

    def _renew(self):
        """Renews the claim, unless another process has become the writer."""
        with self._mutex:
            if self._end.is_set() or self._lost:
                return
            try:
                self._lost = self._why_lost()
                if not self._lost:
                    self._write()
            except OSError as error:
                # While the store is failing, saves fail too, so a warning is enough.
                logging.warning("Could not renew the lock %s: %s", self._path, error)
        if self._lost:
            logging.error("%s", self._lost)

    def _why_lost(self):
        """Says why this process is no longer the writer; returns "" while it is."""
        if self._claim["state"] != "writing":
            return ""
        problem = ""
        if self._written and not files.exists(self._path, _ONCE):
            problem = f"its lock {self._path} was removed"
        for owner in (_parse(raw) for _, raw in self._others()):
            if owner and owner["state"] == "writing":
                problem = f"{_describe(owner)} took over on {owner['since']}"
        if not problem:
            return ""
        return (
            f"This process may no longer write into {self._folder}: {problem}, after "
            f"{self._lease_s:g} s without a renewal."
        )


def _parse(raw):
    """Decodes a claim; returns None if it is incomplete because it is being written."""
    try:
        claim = json.loads(raw)
        # The kernel's process numbers are below 2^22; any user may write a claim.
        known = _KEYS <= claim.keys() and type(claim["pid"]) is int
        return claim if known and 0 < claim["pid"] < 1 << 22 else None
    except (ValueError, AttributeError, RecursionError):
        return None


def _describe(owner):
    """Returns a description of a claim's process for messages."""
    return f"process {owner['pid']} on {owner['host']}" if owner else "another process"


@functools.cache
def _machine():
    """Returns an identifier of the running kernel and of this process's namespaces."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        # Containers have their own process IDs and may have their own clock ticks.
        spaces = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "time")]
        return " ".join([boot, *spaces])
    except OSError:
        return socket.gethostname()


def _start_and_state(pid):
    """Returns (a process's start in clock ticks, its state); (0, "") if unknown."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return 0, ""
    return int(fields[19]), fields[0]


def _awake_or_suspended_s():
    """Returns the seconds of a clock that keeps running during suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
