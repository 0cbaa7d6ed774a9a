"""A whole conversion: read, shuffle, write, publish; each from where it was ended."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os

import numpy as np

from plsc_tf.data.conversion import finished, manifest, vectors
from plsc_tf.data.conversion.buckets import BucketReader, Buckets, bucket_path
from plsc_tf.data.conversion.outputs import output_of
from plsc_tf.data.conversion.places import Places
from plsc_tf.data.conversion.shards import ShardWriter, read_record
from plsc_tf.data.conversion.work import Work, full_disk
from plsc_tf.parallel import memory
from plsc_tf.progress import Progress
from plsc_tf.storage import files

_FULL = (errno.ENOSPC, errno.EDQUOT)
_PADDING = 3
# What a core's cache holds is read and looked through faster.
_CACHED_BYTES = 1 << 21
# Input files that are open at the same time.
_MOST_OPEN = 256


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
        reread: whether to shuffle by reading the input a second time, where it has
            records as the output shall have them, instead of through buckets on the
            disk; None: where its files fit into free memory twice. Changes nothing
            about the result.
    """

    output_dir: str
    output_format: str = "tfrecord"
    num_shards: int = 8
    shuffle: bool = True
    pad: bool = False
    seed: int = 0
    memory_mb: float = 256
    commit_every_s: float = 30.0
    reread: bool | None = None

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
    fingerprint = finished.fingerprint(source, plan)
    found = finished.look_for(plan.output_dir, fingerprint)
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
        if finished.fingerprint(source, plan) != fingerprint:
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
        self._places = None
        self._state = work.state or {"phase": "read", "position": {}, "done": 0}
        # A block of input is there in up to five forms at a time. Below 32 MiB the C
        # library keeps freed memory, which the system takes long to hand out anew.
        self._batch_bytes = min(int(plan.memory_mb * (1 << 16)), 1 << 24)

    def read(self):
        """Scatters the input over buckets, or counts it where the order is kept."""
        if self._state["phase"] != "read":
            return
        origin, count = "input", None
        if not self._plan.shuffle:
            count = self._source.count()
        elif not self._state["done"] and self._may_reread() and self._find():
            origin, count = "places", len(self._places)
        if count is None:
            origin, count = "buckets", self._scatter()
        self._check_count(count)
        self._state = {
            "phase": "write",
            "origin": origin,
            "count": count,
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
                write = {
                    "input": self._stream,
                    "buckets": self._gather,
                    "places": self._reread,
                }
                write[state["origin"]](writer)
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

    def _may_reread(self):
        """Whether the input's files stay in the system's cache, as far as one knows."""
        paths = getattr(self._source, "paths", [])
        if not paths or len(paths) > _MOST_OPEN or not all(map(files.is_local, paths)):
            return False
        if self._plan.reread is None:
            return _fits(2 * self._source.total)
        return self._plan.reread

    def _find(self):
        """Finds the records' places; whether that is all it takes."""
        plan, source = self._plan, self._source
        places = Places(source.paths, int(plan.memory_mb * (1 << 20) * 0.4))
        progress = self._progress("Reading", source.total, source.unit)
        block_bytes = min(self._batch_bytes, _CACHED_BYTES)
        spans = source.spans(self._output, block_bytes)
        with contextlib.closing(progress), contextlib.closing(spans):
            for file, table in spans:
                if table is None or not places.add(file, table):
                    return False
                progress.add(int(table[:, 1].sum()))
        places.shuffle(source.num_buckets(), plan.seed)
        self._places = places
        return True

    def _reread(self, writer):
        """Writes the records from where they stand in the input."""
        if self._places is None and not self._find():
            raise RuntimeError(
                "More memory_mb is needed to go on than there was at the beginning. "
                f"Received: memory_mb={self._plan.memory_mb}."
            )
        progress = self._progress("Writing", self._state["count"], "records")
        progress.resumed(writer.count)
        groups = vectors.ahead(self._places.read_all(writer.count))
        with contextlib.closing(progress), contextlib.closing(groups):
            for records, table in groups:
                writer.add(records, table)
                progress.add(len(records))
                if self._work.due():
                    self._commit_shards(writer)

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


def _fits(num_bytes):
    """Whether the system's cache has room, as far as the system tells."""
    free = memory.free_memory()
    return bool(free) and num_bytes <= min(free, memory.machine_memory())
