"""TFRecords on HDFS, read through pyarrow and through tensorflow-io by turns.

Starts the HDFS of tests/hdfs, and a new process for each measurement; TensorFlow must
be 2.17, on which tensorflow-io loads. The last line printed is one JSON object;
benchmarks/README.md says what its figures mean.

    python -m benchmarks.hdfs
"""

import dataclasses
import json
import os
import pathlib
import statistics
import sys
import tempfile

from benchmarks import children, machine, options
from plsc_tf.flags.option import OptionGroup, option

WAYS = ("pyarrow", "tensorflow_io")


class HdfsCase(OptionGroup):
    """The records and how often they are read."""

    megabytes: int = option(1000, "size of all files in 10⁶ bytes", lower=1)
    files: int = option(8, "number of files", lower=1)
    record_bytes: int = option(20_000, "size of an image", lower=1)
    rounds: int = option(3, "alternating rounds of measurements", lower=1)
    seed: int = option(0, "seed of the images' bytes and of the shuffled order")


def main(case):
    """Measures and prints."""
    sys.path.insert(0, str(children.ROOT / "tests/hdfs"))
    import hdfs_cluster

    with tempfile.TemporaryDirectory(prefix="plsc_tf-") as folder:
        cluster = hdfs_cluster.start(pathlib.Path(folder, "hdfs"))
        try:
            os.environ.update(cluster.environment(), PLSC_TF_HDFS=cluster.uri)
            found = compare(case, folder)
        finally:
            cluster.stop_all()
    sys.stdout.write(json.dumps(found) + "\n")


def compare(case, folder):
    """Writes the records and reads them in both ways.

    Returns:
        the figures to print; rates are in 10⁶ bytes per second.
    """
    hidden = pathlib.Path(folder, "hidden")
    hidden.mkdir()
    (hidden / "tensorflow_io.py").write_text("raise ImportError('hidden')")
    figures = {way: [] for way in WAYS}
    with machine.watch_others() as others:
        for turn in range(case.rounds):
            for way in WAYS if turn % 2 == 0 else WAYS[::-1]:
                os.environ["PYTHONPATH"] = str(hidden) if way == "pyarrow" else ""
                figures[way].append(
                    children.last_line(
                        "-m", "benchmarks.hdfs_reader", *options.arguments(case)
                    )
                )
                sys.stderr.write(f"{way}: {json.dumps(figures[way][-1])}\n")
    used = [{one["in_tensorflow"] for one in figures[way]} for way in WAYS]
    if used != [{False}, {True}]:
        raise RuntimeError(
            "One way must use pyarrow, the other tensorflow-io, which needs TensorFlow "
            f"2.17: pip install 'plsc_tf[tfio]'. Received: {figures}."
        )
    first, second = (figures[way] for way in WAYS)
    names = [name for name in first[0] if name != "in_tensorflow"]
    ratios = {
        name: [round(a[name] / b[name], 3) for a, b in zip(first, second, strict=True)]
        for name in names
    }
    speeds = [statistics.median(ratios[name]) for name in names if "mb_s" in name]
    return {
        "ratio": min(speeds),
        "ratios": ratios,
        **{
            way: {
                name: round(statistics.median(one[name] for one in figures[way]), 2)
                for name in names
            }
            for way in WAYS
        },
        "parameters": dataclasses.asdict(case),
        "machine": machine.describe(),
        **others,
    }


if __name__ == "__main__":
    options.run(main, HdfsCase, __doc__)
