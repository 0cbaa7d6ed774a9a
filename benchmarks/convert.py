"""Shuffling base64 part files, beside SQLite as PLSC's tool uses it, and beside `cp`.

The last line printed is one JSON object; benchmarks/README.md says what its figures
mean.

    python -m benchmarks.convert
    python -m benchmarks.convert --lines=3000000 --sqlite=false --folder=/mnt/disk
"""

import dataclasses
import io
import json
import os
import pathlib
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time

import numpy as np

from benchmarks import machine, options
from benchmarks.rounding import rounded
from plsc_tf.flags.option import OptionGroup, option

_FILES = 4
_CLASSES = 10_000
# What the text of a JPEG file begins with.
_JPEG = b"/9j/"
# Texts are cut out of so many random characters; nothing here compresses them.
_POOL_BYTES = 1 << 26


class ConvertCase(OptionGroup):
    """How much is shuffled, and where."""

    lines: int = option(200_000, "images", lower=8)
    image_bytes: int = option(5_000, "mean size of an image in bytes", lower=8)
    nranks: int = option(8, "files to write", lower=1)
    output_format: str = option("base64", "output format", choices="base64 tfrecord")
    memory_mb: int = option(256, "the converter's option memory_mb", lower=8)
    sqlite: bool = option(True, "also measure SQLite, once")
    rounds: int = option(3, "alternating rounds of converter and cp", lower=1)
    folder: str = option(
        "", "folder on the disk to measure; empty: the temporary folder"
    )
    seed: int = option(0, "random seed of images, labels and order", lower=0)


def main(case):
    """Measures one case and prints it."""
    needed, asked = 3.2 * case.lines * case.image_bytes * 4 / 3, f"lines={case.lines}"
    with (
        machine.scratch("convert", case.folder, needed, asked) as folder,
        machine.watch_others() as others,
    ):
        figures = measure(case, pathlib.Path(folder))
    print(json.dumps({**figures, **others}))


def measure(case, folder):
    """Figures of one case; see benchmarks/README.md.

    Args:
        case: the `ConvertCase`.
        folder: an empty folder to write in.
    """
    source = folder / "parts"
    source.mkdir()
    num_bytes = write_parts(case, source)
    seconds, grown = {"convert": [], "copy_twice": []}, []
    for _ in range(case.rounds):
        took, memory = convert(case, source, folder / "converted")
        seconds["convert"].append(took)
        grown.append(memory)
        seconds["copy_twice"].append(copy_twice(source, folder))
        sys.stderr.write(
            f"convert {took:.2f} s, {memory / 1e6:.0f} MB; copies "
            f"{seconds['copy_twice'][-1]:.2f} s\n"
        )
    medians = {name: statistics.median(all_) for name, all_ in seconds.items()}
    figures = {"vs_copy": medians["convert"] / medians["copy_twice"]}
    if case.sqlite:
        for name, letters in (("sqlite", True), ("sqlite_whole_lines", False)):
            seconds[name] = [
                shuffle_by_sqlite(case, source, folder / "sqlite", letters=letters)
            ]
            figures[f"vs_{name}"] = seconds[name][0] / medians["convert"]
    return {
        **rounded(figures, 4),
        "peak_rss_mb": round(max(grown) / 1e6, 1),
        "lines_per_s": round(case.lines / medians["convert"]),
        "megabytes": round(num_bytes / 1e6, 1),
        "rounds_s": rounded(seconds, 4),
        "machine": machine.describe(),
        "parameters": dataclasses.asdict(case),
    }


def write_parts(case, folder):
    """Writes part files of random images and labels; returns their bytes."""
    rng = np.random.default_rng(case.seed)
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    codes = rng.integers(0, 64, _POOL_BYTES, np.uint8)
    pool = np.frombuffer(alphabet, np.uint8)[codes].tobytes()
    spread = case.image_bytes // 2
    names = [f"part-{k}" for k in range(_FILES)]
    for k, name in enumerate(names):
        count = (case.lines + k) // _FILES
        sizes = case.image_bytes + rng.integers(-spread, spread + 1, count)
        lengths = 4 * ((sizes + 2) // 3) - len(_JPEG)
        starts = rng.integers(0, _POOL_BYTES - int(lengths.max()), count)
        labels = rng.integers(0, _CLASSES, count)
        rows = zip(starts.tolist(), lengths.tolist(), labels.tolist(), strict=True)
        with open(folder / name, "wb") as file:
            file.writelines(
                b"%s%s\t%d\n" % (_JPEG, pool[s : s + n], k) for s, n, k in rows
            )
    (folder / "file_list.txt").write_text("\n".join(names) + "\n", encoding="ascii")
    return sum((folder / name).stat().st_size for name in names)


def convert(case, source, target):
    """Runs the converter; returns seconds, and the growth of the resident memory."""
    # Not at the top, so that a wrong option answers at once.
    from plsc_tf.data.conversion import run
    from plsc_tf.data.conversion.inputs import Base64Input

    names = (source / "file_list.txt").read_text(encoding="ascii").split()
    plan = run.ConversionPlan(
        str(target),
        output_format=case.output_format,
        num_shards=case.nranks,
        pad=True,
        seed=case.seed,
        memory_mb=case.memory_mb,
    )
    os.sync()
    before = machine.reset_peak_rss()
    with machine.no_garbage_collection():
        start = time.perf_counter()
        run.convert(Base64Input([str(source / name) for name in names]), plan)
        seconds = time.perf_counter() - start
    grown = machine.peak_rss() - before
    shutil.rmtree(target)
    return seconds, grown


def copy_twice(source, folder):
    """Seconds of `cp` of the source and of the copy, the last of which is flushed."""
    first, second = folder / "first", folder / "second"
    os.sync()
    start = time.perf_counter()
    subprocess.run(["cp", "-r", source, first], check=True)
    subprocess.run(["cp", "-r", first, second], check=True)
    for path in second.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    seconds = time.perf_counter() - start
    shutil.rmtree(first)
    shutil.rmtree(second)
    return seconds


def shuffle_by_sqlite(case, source, target, *, letters):
    """Seconds of the same work in the way of PLSC's tool, after its description.

    Every line goes into a table by a statement of its own, made as text; the numbers
    of the rows are shuffled and padded with their first ones; every row is asked for
    by its number and written to its rank's file: by `writelines` of one string, as
    there, which writes letter by letter, or whole.
    """
    write = io.TextIOWrapper.writelines if letters else io.TextIOWrapper.write
    target.mkdir()
    os.sync()
    start = time.perf_counter()
    with sqlite3.connect(target / "scratch.db") as database:
        cursor, count = database.cursor(), 0
        # INT, as there: the key is an index of its own, not the number of the row.
        cursor.execute(
            "CREATE TABLE lines (id INT PRIMARY KEY NOT NULL, image TEXT NOT NULL, "
            "label INT NOT NULL)"
        )
        for path in sorted(source.glob("part-*")):
            with path.open(encoding="ascii") as file:
                for line in file:
                    image, label = line.split()
                    cursor.execute(
                        f"INSERT INTO lines VALUES ({count}, '{image}', {label})"
                    )
                    count += 1
        database.commit()
        numbers = list(range(count))
        random.Random(case.seed).shuffle(numbers)
        share = -(-count // case.nranks)
        numbers += numbers[: share * case.nranks - count]
        for rank in range(case.nranks):
            with open(target / f"base64_rank_{rank}", "w", encoding="ascii") as file:
                for number in numbers[rank * share : (rank + 1) * share]:
                    found = cursor.execute(
                        f"SELECT image, label FROM lines WHERE id={number}"
                    )
                    for image, label in found:
                        write(file, f"{image}\t{label}\n")
    database.close()
    seconds = time.perf_counter() - start
    shutil.rmtree(target)
    return seconds


if __name__ == "__main__":
    options.run(main, ConvertCase, __doc__)
