"""Measures the shuffling of base64 part files, compared with `cp`.

The last line printed is one JSON object; benchmarks/README.md says what its figures
mean.

    python -m benchmarks.convert
    python -m benchmarks.convert --lines=3000000 --folder=/mnt/disk
"""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from benchmarks import machine, options
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
        machine.report(case) as figures,
    ):
        figures |= measure(case, pathlib.Path(folder))


def measure(case, folder):
    """Figures of one case; see benchmarks/README.md.

    Args:
        case: the `ConvertCase`.
        folder: an empty folder to write in.
    """
    source = folder / "parts"
    source.mkdir()
    num_bytes = write_parts(case, source)
    watch, grown = machine.Stopwatch(), []
    for _ in range(case.rounds):
        os.sync()
        before = machine.reset_peak_rss()
        with watch.time("convert"):
            convert(case, source, folder / "converted")
        grown.append(machine.peak_rss() - before)
        shutil.rmtree(folder / "converted")
        os.sync()
        with watch.time("copy_twice"):
            copy_twice(source, folder)
        shutil.rmtree(folder / "first")
        shutil.rmtree(folder / "second")
        taken = {name: round(times[-1], 2) for name, times in watch.seconds.items()}
        sys.stderr.write(f"{taken}, {grown[-1] / 1e6:.0f} MB\n")
    seconds, _ = watch.medians()
    return {
        "vs_copy": seconds["convert"] / seconds["copy_twice"],
        "peak_rss_mb": max(grown) / 1e6,
        "lines_per_s": round(case.lines / seconds["convert"]),
        "megabytes": num_bytes / 1e6,
        "rounds_s": dict(watch.seconds),
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
    """Runs the converter."""
    # Not at the top, so that a wrong option answers at once.
    from plsc_tf.data.conversion import run
    from plsc_tf.data.conversion.inputs import FilesInput
    from plsc_tf.data.readers.formats import BASE64

    names = (source / "file_list.txt").read_text(encoding="ascii").split()
    plan = run.ConversionPlan(
        str(target),
        output_format=case.output_format,
        num_shards=case.nranks,
        pad=True,
        seed=case.seed,
        memory_mb=case.memory_mb,
    )
    paths = [str(source / name) for name in names]
    run.convert(FilesInput(BASE64, paths), plan)


def copy_twice(source, folder):
    """`cp` of the source and of the copy, the last of which is flushed to the disk."""
    first, second = folder / "first", folder / "second"
    subprocess.run(["cp", "-r", source, first], check=True)
    subprocess.run(["cp", "-r", first, second], check=True)
    for path in second.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


if __name__ == "__main__":
    options.run(main, ConvertCase, __doc__)
