"""Runs a conversion: read, shuffle, write, publish; every step can be resumed.

To shuffle more records than fit in memory, each record is appended to a random bucket;
then the buckets are written one after another, each in a random order. All orders are
equally likely: Rao 1961, Sandelius 1962 ("A simple randomization procedure"). The order
depends only on the seed and the record numbers, not on memory or interruptions. Without
shuffling, the buckets are filled one after another, and the order does not change.

All work is done in the folder `.<output>.converting` in the output's parent folder, so
that publishing the finished shards is a single rename.
"""

import concurrent.futures
import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator

import numpy as np
from absl import logging

from plsc_tf.data.conversion import inputs, shards
from plsc_tf.data.paths import INDEX_ENDING
from plsc_tf.data.readers.formats import FORMATS
from plsc_tf.progress import Progress
from plsc_tf.requirements import require
from plsc_tf.storage import files, local, outputs
from plsc_tf.storage.writer_lock import WriterLock

# Part of the fingerprint: a version must not resume one that orders differently.
_VERSION = 2
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Seeds that distinguish the streams of random numbers.
_BUCKET, _ORDER, _PADDING = 1, 2, 3
_SYNC_THREADS = 8
# States of journal.json and journal-2.json, earlier versions, cannot be resumed.
_JOURNAL = "journal-3.json"


@dataclasses.dataclass(frozen=True)
class ConversionPlan:
    """Options of a conversion.

    Args:
        output_dir: the folder to create; must be local, and new or empty.
        output_format: "tfrecord" or "base64".
        num_shards: number of files.
        shuffle: whether to shuffle all records.
        pad: whether to repeat random records so that all files have the same number of
            records; otherwise the numbers may differ by one.
        seed: random seed for shuffling and padding.
        memory_mb: approximate memory to use; does not affect the result.
        commit_every_s: seconds of reading that may be lost if the process is killed; of
            writing, the shard that is not complete is written again.
    """

    output_dir: str
    output_format: str = "tfrecord"
    num_shards: int = 8
    shuffle: bool = True
    pad: bool = False
    seed: int = 0
    memory_mb: float = 256
    commit_every_s: float = 30.0

    def __post_init__(self):
        folder = self.output_dir
        rule = "output_dir must be a local folder: shards are written in pieces"
        fits, advice = folder and files.is_local(folder), "Copy the shards afterwards"
        require(fits, rule, advice, output_dir=repr(folder))

    def result(self) -> dict:
        """Returns the options that affect the result."""
        names = ("output_format", "num_shards", "shuffle", "pad", "seed")
        return {name: getattr(self, name) for name in names}


def convert(source, plan: ConversionPlan) -> tuple[dict, bool]:
    """Converts an input, or resumes an interrupted conversion.

    Args:
        source: a `FilesInput` or `SourceInput`.
        plan: the options.

    Returns:
        (the manifest, whether the output already existed).

    Raises:
        FileExistsError: output_dir exists and contains something else.
        ValueError: records cannot be converted; the message gives files and positions.
            Or the folder in which to work belongs to another user.
        StorageError: the disk is full; once there is space, the same call resumes.
        RuntimeError: another process is converting to output_dir, or the input changed.
    """
    fingerprint = _fingerprint(source, plan)
    parent, name = os.path.split(os.path.abspath(plan.output_dir))
    folder = os.path.join(parent, f".{name}.converting")
    if (earlier := shards.finished(plan.output_dir, fingerprint)) is not None:
        # Remove what a process left behind that was killed after publishing.
        shutil.rmtree(folder, ignore_errors=True)
        return earlier, True
    # An empty folder. The root of a disk or a link fails here, not after hours.
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(plan.output_dir)
    with WriterLock("Wait until it ends, or stop it.") as lock:
        outputs.require_own(folder)
        lock.acquire(folder)
        conversion = _Conversion(source, plan, folder, fingerprint)
        try:
            conversion.read()
            conversion.write()
            content = conversion.finish()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            free = shutil.disk_usage(folder).free / 1e6
            raise files.StorageError(
                f"The disk of {folder} is full: {error.strerror}, {free:.0f} MB free. "
                "Free some space, then run the same command again to resume.",
                error.errno,
            ) from error
        same = _fingerprint(source, plan) == fingerprint
        rule = "The input changed during the conversion, so nothing was published"
        require(same, rule, "Run the same command again", raises=RuntimeError)
        conversion.publish()
    return content, False


def _fingerprint(source, plan):
    """Returns a digest of the input, the options and the shuffling version."""
    facts = {"version": _VERSION, "numpy": np.__version__}
    facts |= {"source": source.fingerprint(), "plan": plan.result()}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class _Conversion:
    """The steps of a conversion.

    The journal stores `_state`: `count`, the number of input records (None until all
    are read); `buckets`, (records, bytes) of each bucket; `position` in the input;
    `done`, the units of the input read so far; and `shards`, the number of complete
    shards.
    """

    def __init__(self, source, plan, folder, fingerprint):
        self._source, self._plan = source, plan
        self._folder, self._fingerprint = folder, fingerprint
        self._id = {"fingerprint": fingerprint, "mark": outputs.mark(folder)}
        self._buckets, self._shards = f"{folder}/buckets", f"{folder}/shards"
        self._output = FORMATS[plan.output_format]
        count = plan.num_shards
        self._names = [self._output.shard_name.format(k, count) for k in range(count)]
        # Up to five copies of a block of input are in memory at a time. Below 32 MiB,
        # the C library reuses freed memory, which is faster than new allocations.
        self._batch_bytes = min(int(plan.memory_mb * (1 << 16)), 1 << 24)
        stored = self._stored_state()
        fresh = {"count": None, "position": {}, "done": 0, "shards": 0}
        fresh["buckets"] = [(0, 0)] * source.num_buckets()
        self._state = stored or fresh
        for path in (self._buckets, self._shards):
            if stored is None:
                shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path, exist_ok=True)
        self._committed = time.monotonic()

    def _stored_state(self):
        path = os.path.join(self._folder, _JOURNAL)
        if os.path.exists(path):
            journal = files.read_json(path)
            if journal == journal | self._id and os.path.isdir(self._shards):
                logging.info("Resuming the conversion in %s.", self._folder)
                return journal["state"]
            text = "Starting over: %s has other inputs or options, or is a copy"
            logging.warning(text, self._folder)
            os.remove(path)
        return None

    def _commit(self):
        """Writes the state to the journal; its files must already be synced to disk."""
        path = os.path.join(self._folder, _JOURNAL)
        files.replace(path, json.dumps(self._id | {"state": self._state}).encode())
        self._committed = time.monotonic()

    def read(self):
        """Distributes the input to buckets."""
        state, source = self._state, self._source
        if state["count"] is not None:
            return
        buckets = [
            shards.RecordFile(self._bucket(number), self._output.header_bytes, *kept)
            for number, kept in enumerate(state["buckets"])
        ]
        count = sum(bucket.count for bucket in buckets)

        def commit():
            with concurrent.futures.ThreadPoolExecutor(_SYNC_THREADS) as pool:
                list(pool.map(shards.RecordFile.sync, buckets))
            state["buckets"] = [(bucket.count, bucket.size) for bucket in buckets]
            self._commit()

        batches = source.batches(self._output, state["position"], self._batch_bytes)
        work = "Reading", source.total, source.unit, state["done"]
        with self._progress(*work) as progress:
            for records, table, position, done in _prefetched(batches):
                chosen = self._choose_buckets(count, len(records))
                for number in np.unique(chosen).tolist():
                    rows = np.flatnonzero(chosen == number)
                    some = [records[row] for row in rows.tolist()]
                    buckets[number].add(some, table[rows])
                count += len(records)
                state["position"] = position
                state["done"] += done
                progress.add(done)
                if time.monotonic() - self._committed >= self._plan.commit_every_s:
                    commit()
        num_shards = self._plan.num_shards
        rule = f"num_shards must not exceed the number of records, {count}"
        require(num_shards <= count, rule, num_shards=num_shards)
        state["count"] = count
        commit()

    def write(self):
        """Writes the shards from the buckets, one shard after another."""
        state, plan = self._state, self._plan
        count, total = state["count"], state["count"] + self._padding()
        paths = [os.path.join(self._shards, name) for name in self._names]
        header_bytes = self._output.header_bytes
        counts = [-(-(total - k) // len(paths)) for k in range(len(paths))]
        starts = np.cumsum([0, *counts]).tolist()
        random = np.random.default_rng([plan.seed, _PADDING])
        repeated = random.choice(count, total - count, replace=False).tolist()

        def read(row):
            number = int(np.searchsorted(starts, row, "right")) - 1
            place = np.array([row - starts[number]])
            return next(shards.read_records(paths[number], header_bytes, place))

        done = min(starts[state["shards"]], count)
        with self._progress("Writing", count, "records", done) as progress:
            for number in range(state["shards"], len(paths)):
                start, end = starts[number], starts[number + 1]
                shard = shards.RecordFile(paths[number], header_bytes)
                for records, table in _prefetched(self._gather(start, min(end, count))):
                    shard.add(records, table)
                    progress.add(len(records))
                shard.sync()
                rows = repeated[max(start - count, 0) : max(end - count, 0)]
                for padding in list(map(read, rows)):
                    shard.add(*padding)
                shard.sync()
                state["shards"] = number + 1
                self._commit()
                self._remove_buckets(end)

    def finish(self):
        """Writes and returns the manifest."""
        plan = self._plan
        facts = {
            "format": plan.output_format,
            "num_examples": self._state["count"],
            "padding": self._padding(),
            "seed": plan.seed,
            "options": plan.result(),
            "source": self._source.describe(),
            "fingerprint": self._fingerprint,
            "mark": outputs.mark(self._shards),
        }
        listed = self._output.file_list
        return shards.write_manifest(self._shards, self._names, facts, listed)

    def publish(self):
        """Renames the folder of shards to the output and removes temporary files."""
        local.sync_folder(self._shards)
        files.rename(self._shards, os.path.abspath(self._plan.output_dir))
        shutil.rmtree(self._folder)

    def _choose_buckets(self, first, count):
        """Returns the buckets of the input's records `[first, first + count)`."""
        num_buckets = len(self._state["buckets"])
        if not self._plan.shuffle:
            share = self._state["done"] / (self._source.total or inputs.UNKNOWN)
            return np.full(count, min(int(share * num_buckets), num_buckets - 1))
        # Each record has its own number of the stream, so that it can begin anywhere.
        numbers = np.random.PCG64([self._plan.seed, _BUCKET]).advance(first)
        chances = np.random.Generator(numbers).random(count)
        return (chances * num_buckets).astype(np.int64)

    def _gather(self, first, last) -> Iterator[tuple]:
        """Yields (records, table) of the output's records `[first, last)`."""
        for number, (count, _) in enumerate(self._state["buckets"]):
            if first < count and last > 0:
                order = np.arange(count)
                if self._plan.shuffle:
                    seed = [self._plan.seed, _ORDER, number]
                    order = np.random.default_rng(seed).permutation(count)
                path, header_bytes = self._bucket(number), self._output.header_bytes
                yield from shards.read_records(path, header_bytes, order[first:last])
            first, last = max(first - count, 0), last - count

    def _remove_buckets(self, done):
        """Removes the buckets of the output's records `[0, done)`."""
        ends = np.cumsum([count for count, _ in self._state["buckets"]])
        for number in range(np.searchsorted(ends, done, "right")):
            for ending in ("", INDEX_ENDING):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(self._bucket(number) + ending)

    def _bucket(self, number):
        return os.path.join(self._buckets, f"bucket_{number}")

    def _padding(self):
        """Returns the number of repeated records."""
        return -self._state["count"] % self._plan.num_shards if self._plan.pad else 0

    def _progress(self, action, total, unit, done):
        return Progress(f"{action} {self._plan.output_dir}", total, unit, done)


def _prefetched(items: Iterator) -> Iterator:
    """Yields the items, while a thread computes the next one."""
    end = object()
    with contextlib.closing(items), concurrent.futures.ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield item
