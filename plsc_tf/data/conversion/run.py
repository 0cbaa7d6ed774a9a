"""A whole conversion: read, shuffle, write, publish; each from where it was ended."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import shutil

import numpy as np
from absl import logging

from plsc_tf.data.conversion import manifest, vectors
from plsc_tf.data.conversion.buckets import BucketReader, Buckets, bucket_path
from plsc_tf.data.conversion.outputs import output_of
from plsc_tf.data.conversion.progress import Progress
from plsc_tf.data.conversion.shards import ShardWriter, read_record
from plsc_tf.data.conversion.work import Work, full_disk, work_folder
from plsc_tf.storage import files

_FULL = (errno.ENOSPC, errno.EDQUOT)
_PADDING = 3
# Of another order: what was begun by an older version must not be gone on with.
_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to make of an input.

    Args:
        output_dir: the folder to make; local, and not there yet.
        output_format: "tfrecord" or "base64".
        num_shards: files of equal numbers of records.
        shuffle: whether to put all records into a random order.
        pad: whether records drawn at random repeat, so that all files have exactly
            as many; else these numbers differ by one at most.
        seed: of order and padding.
        memory_mb: about what may be used; changes nothing about the result.
        commit_every_s: seconds of work that may be lost when the process is killed.
    """

    output_dir: str
    output_format: str = "tfrecord"
    num_shards: int = 8
    shuffle: bool = True
    pad: bool = False
    seed: int = 0
    memory_mb: float = 256
    commit_every_s: float = 15.0

    def __post_init__(self):
        if not self.output_dir:
            raise ValueError("output_dir must be set. Received: output_dir=''.")
        if not files.is_local(self.output_dir):
            raise ValueError(
                "output_dir must be a local folder: shards are written in pieces. "
                f"Received: {self.output_dir}. Copy the finished folder there."
            )

    def result(self) -> dict:
        """The options that decide on the result."""
        names = ("output_format", "num_shards", "shuffle", "pad", "seed")
        return {name: getattr(self, name) for name in names}


def convert(source, plan: Plan) -> tuple[dict, bool]:
    """Converts an input; a conversion that was interrupted is gone on with.

    Args:
        source: a `Base64Input`, `RecordInput` or `SourceInput`.
        plan: the `Plan`.

    Returns:
        (the manifest, whether the output was there already).

    Raises:
        FileExistsError: output_dir is there and holds something else.
        ValueError: records that cannot be converted; files and positions are named.
        StorageError: the disk is full; room made, the same call goes on.
        RuntimeError: another process converts to output_dir, or the input changed.
    """
    fingerprint = _fingerprint(source, plan)
    found = _finished(plan.output_dir, fingerprint)
    if found is not None:
        return found, True
    with contextlib.closing(
        Work(plan.output_dir, fingerprint, plan.commit_every_s)
    ) as work:
        conversion = _Conversion(source, plan, work)
        try:
            conversion.read()
            conversion.write()
            done = conversion.finish(fingerprint)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise full_disk(error, work.folder) from error
        if _fingerprint(source, plan) != fingerprint:
            raise RuntimeError(
                "The files to convert were changed meanwhile. Nothing was published; "
                "run the same command again."
            )
        work.publish()
    return done, False


class _Conversion:
    """The phases of a conversion; `state` holds what the journal needs."""

    def __init__(self, source, plan, work):
        self._source, self._plan, self._work = source, plan, work
        self._output = output_of(plan.output_format)
        self._state = work.state or {"phase": "read", "position": {}, "done": 0}
        # A block of input is there in up to five forms at a time. Below 32 MiB the C
        # library keeps freed memory, which the system takes long to hand out anew.
        self._batch_bytes = min(int(plan.memory_mb * (1 << 16)), 1 << 24)

    def read(self):
        """Scatters the input over buckets, or counts it where the order is kept."""
        if self._state["phase"] != "read":
            return
        count = None if self._plan.shuffle else self._source.count()
        if count is None:
            count = self._scatter()
        self._check_count(count)
        self._state = {
            "phase": "write",
            "count": count,
            "from_input": not self._state.get("buckets"),
            "num_buckets": len(self._state.get("buckets", {}).get("sizes", [])),
            "bucket": 0,
            "position": {},
            "done": 0,
            "shards": {},
        }
        self._work.commit(self._state)

    def write(self):
        """Writes the shards, from the buckets or directly from the input."""
        state, plan = self._state, self._plan
        total = state["count"] + self._padding()
        counts = [
            (total + plan.num_shards - 1 - number) // plan.num_shards
            for number in range(plan.num_shards)
        ]
        self._names = [
            self._output.shard_name(number, plan.num_shards)
            for number in range(plan.num_shards)
        ]
        writer = ShardWriter(
            self._work.shards,
            self._names,
            counts,
            self._output.lead,
            state["shards"],
        )
        with contextlib.closing(writer):
            if writer.count < state["count"]:
                if state["from_input"]:
                    self._stream(writer)
                else:
                    self._gather(writer)
            if writer.count < state["count"]:
                raise RuntimeError(
                    f"The input had {state['count']} records when they were counted, "
                    f"and {writer.count} when they were read: it was changed."
                )
            for row in self._padding_rows()[writer.count - state["count"] :]:
                shard, place = self._place(row, counts)
                record, table = read_record(
                    self._work.shards,
                    self._names[shard],
                    place,
                    self._output.record_bytes,
                    self._output.lead,
                )
                writer.add([record], table)
            state["shards"] = writer.state()

    def finish(self, fingerprint):
        """Writes the manifest; returns it."""
        plan, count = self._plan, self._state["count"]
        about = {
            "format": plan.output_format,
            "num_examples": count,
            "padding": self._padding(),
            "seed": plan.seed,
            "options": plan.result(),
            "source": self._source.describe(),
            "fingerprint": fingerprint,
        }
        return manifest.write(
            self._work.shards,
            self._state["shards"]["done"],
            about,
            self._output.other_files(self._names),
        )

    def _scatter(self):
        state, plan = self._state, self._plan
        num_buckets = self._source.num_buckets() if plan.shuffle else 1
        buckets = Buckets(
            self._work.buckets, num_buckets, plan.seed, state.get("buckets", {})
        )
        progress = self._progress("Reading", self._source.total, self._source.unit)
        progress.resumed(state["done"])
        with (
            contextlib.closing(buckets),
            contextlib.closing(progress),
            self._batches() as batches,
        ):
            for batch in batches:
                buckets.add(batch.records, batch.payload_bytes, batch.labels)
                state["position"] = batch.position
                state["done"] += batch.done
                progress.add(batch.done, f"{buckets.count:,} records")
                if self._work.due():
                    buckets.sync()
                    state["buckets"] = buckets.state()
                    self._work.commit(state)
            buckets.sync()
        state["buckets"] = buckets.state()
        return buckets.count

    def _gather(self, writer):
        """Writes the buckets one after the other, each in a random order."""
        state, seed = self._state, self._plan.seed if self._plan.shuffle else None
        progress = self._progress("Writing", state["count"], "records")
        progress.resumed(writer.count)
        # Two buckets are in memory at a time.
        memory = int(self._plan.memory_mb * (1 << 20) * 0.4)
        reader = BucketReader(self._work.buckets, seed, memory)
        numbers = range(state["bucket"], state["num_buckets"])
        items = vectors.ahead(reader.read_all(numbers))
        written = []
        with contextlib.closing(progress), contextlib.closing(items):
            for number, records, table in items:
                if number != state["bucket"]:
                    written.append(bucket_path(self._work.buckets, state["bucket"]))
                    state["bucket"] = number
                    if self._work.due():
                        self._commit_shards(writer)
                        while written:
                            os.remove(written.pop())
                writer.add(records, table)
                progress.add(len(records))

    def _stream(self, writer):
        """Writes the input in its own order."""
        state = self._state
        progress = self._progress("Writing", self._source.total, self._source.unit)
        progress.resumed(state["done"])
        with contextlib.closing(progress), self._batches() as batches:
            for batch in batches:
                table = np.empty((len(batch.records), 3), np.int64)
                table[:, 0] = [len(record) for record in batch.records]
                table[:, 1], table[:, 2] = batch.payload_bytes, batch.labels
                room = state["count"] - writer.count
                writer.add(batch.records[:room], table[:room])
                state["position"] = batch.position
                state["done"] += batch.done
                progress.add(batch.done, f"{writer.count:,} records")
                if self._work.due():
                    self._commit_shards(writer)

    def _commit_shards(self, writer):
        writer.sync()
        self._state["shards"] = writer.state()
        self._work.commit(self._state)

    def _batches(self):
        batches = self._source.batches(
            self._output, self._state["position"], self._batch_bytes
        )
        return contextlib.closing(vectors.ahead(batches))

    def _progress(self, doing, total, unit):
        return Progress(f"{doing} {self._plan.output_dir}", total, unit)

    def _padding(self):
        """How many records are there twice."""
        if not self._plan.pad:
            return 0
        return -self._state["count"] % self._plan.num_shards

    def _padding_rows(self):
        """Which records these are, by their number in the output."""
        random = np.random.default_rng([self._plan.seed, _PADDING])
        count, wanted = self._state["count"], self._padding()
        return random.choice(count, wanted, replace=False).tolist()

    def _place(self, row, counts):
        """The shard of a record, and its number in it."""
        ends = np.cumsum(counts)
        shard = int(np.searchsorted(ends, row, side="right"))
        return shard, row - int(ends[shard]) + counts[shard]

    def _check_count(self, count):
        if count < self._plan.num_shards:
            raise ValueError(
                f"num_shards must not exceed the number of records, {count}. "
                f"Received: num_shards={self._plan.num_shards}."
            )


def _fingerprint(source, plan):
    told = {
        "version": _VERSION,
        "numpy": np.__version__,
        "source": source.fingerprint(),
        "plan": plan.result(),
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _finished(output_dir, fingerprint):
    """The manifest of this same conversion, None where nothing is there yet."""
    if not os.path.lexists(output_dir):
        return None
    if os.path.isdir(output_dir) and not os.listdir(output_dir):
        return None
    found = manifest.read(output_dir)
    if found is None or found.get("fingerprint") != fingerprint:
        what = "another conversion" if found else "other files"
        raise FileExistsError(
            f"output_dir {output_dir!r} is there already, with {what}; nothing is "
            "overwritten. Name another folder, or remove that one."
        )
    _check_files(output_dir, found)
    if os.path.isdir(work_folder(output_dir)):
        _remove_leftover(output_dir)
    return found


def _check_files(output_dir, found):
    for name, entry in found["files"].items():
        path = os.path.join(output_dir, name)
        if not os.path.isfile(path) or os.path.getsize(path) != entry["bytes"]:
            raise FileExistsError(
                f"output_dir {output_dir!r} holds this conversion, but {name} is "
                "missing or was changed. Remove the folder to convert again."
            )


def _remove_leftover(output_dir):
    """Removes the work of a process that was killed after it had published."""
    logging.info("Removing %s, which is not needed any more.", work_folder(output_dir))
    shutil.rmtree(work_folder(output_dir), ignore_errors=True)
