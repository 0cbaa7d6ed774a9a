"""Many processes that want to write into one folder, in rounds, without TensorFlow.

    python -m tests.storage.lock_rounds FOLDER ROUNDS one|two

In each round two processes start together, a third is killed while it tries, the
writer is killed, and a last one takes over; on one machine, or each on a machine of its
own. It prints a JSON object of what was seen.
"""

import collections
import json
import multiprocessing
import os
import pathlib
import random
import re
import sys
import time

from plsc_tf.storage.writer_lock import FolderInUseError, WriterLock

# Who had to wait for the first would never come; the second is longer than a busy
# machine stops a process.
LEASE_S = {"one": 600.0, "two": 3.0}
FORK = multiprocessing.get_context("fork")


def take(folder, options, go, pipe):
    """Takes the lock when all are ready, and keeps it until it is told."""
    lock = WriterLock(renew_s=0.05, **options)
    go.wait()
    try:
        lock.acquire(folder)
    except FolderInUseError as error:
        pipe.send(f"refused: {error}")
        return
    inside = pathlib.Path(folder, "inside")
    inside.open("x").close()  # of two at once this fails in one
    pipe.send("in")
    pipe.recv()
    lock.check()
    inside.unlink()
    lock.release()
    pipe.send("out")


class Player:
    """A process that takes the lock."""

    def __init__(self, folder, options, go):
        self._pipe, other = FORK.Pipe()
        self.process = FORK.Process(target=take, args=(folder, options, go, other))
        self.process.start()
        other.close()

    @property
    def pid(self):
        return self.process.pid

    def said(self):
        assert self._pipe.poll(60)
        return self._pipe.recv()

    def leave(self):
        self._pipe.send("leave")
        assert self.said() == "out"
        self.process.join()

    def kill(self):
        self.process.kill()
        self.process.join()


def play(folder, options):
    """Plays a round; yields what was seen."""
    go = FORK.Event()
    pair = [Player(folder, one, go) for one in options[:2]]
    go.set()
    said = [player.said() for player in pair]
    yield f"{said.count('in')} of 2 in"
    writer = pair[said.index("in")]
    refusal = next(text for text in said if text != "in")
    named = f"process {writer.pid} on" in refusal
    yield f"the refused names {'the writer' if named else refusal}"
    third = Player(folder, options[2], go)
    time.sleep(random.uniform(0, 0.03))
    third.kill()
    writer.kill()
    pathlib.Path(folder, "inside").unlink()
    last = Player(folder, options[3], go)
    yield f"the next one: {last.said()}"
    last.leave()
    claim = re.compile(r"\.writer-[0-9a-f]+")
    left = [name for name in os.listdir(folder) if claim.fullmatch(name)]
    yield f"{len(left)} claims left"


def main(folder, rounds, machines):
    names = [None] * 4 if machines == "one" else ["a", "b", "c", "d"]
    options = [{"machine": name, "lease_s": LEASE_S[machines]} for name in names]
    seen = collections.Counter()
    for number in range(int(rounds)):
        seen.update(play(os.path.join(folder, str(number)), options))
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
