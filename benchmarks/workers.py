"""Seconds per step over the number of workers, measured and as a model says.

Worker i of each cluster has core i (modulo the cores) for itself, and its own share of
images, so the global batch grows with the workers. What the model needs is measured
apart: steps of one process alone, and collectives that do nothing else. The last line
printed is one JSON object; benchmarks/README.md says what its figures mean.

    python -m benchmarks.workers
    python -m benchmarks.workers --workers=1,2 --num_classes=100000 --rounds=3
"""

import contextlib
import dataclasses
import math
import multiprocessing
import os
import pathlib
import statistics
import sys

from benchmarks import machine, one_worker, options, processes, step_model
from plsc_tf.flags.option import OptionGroup, option
from plsc_tf.parallel.addresses import free_ports

# (times the images, of the classes) of the steps that the speeds are fitted to.
FITTED = ((1, 1), (2, 1), (1, 0.25), (2, 0.5), (4, 0.25), (4, 0.5))
SMALL = ("small all_sum", "small all_gather", "small reduce_scatter")


class WorkersCase(OptionGroup):
    """What is trained, and how often."""

    workers: tuple[int, ...] = option((1, 2, 3, 4), "sizes of the clusters", lower=1)
    images: int = option(24, "images per step of each worker", lower=1)
    image_size: int = option(32, "height and width in pixels; a multiple of 4", lower=4)
    hidden: int = option(256, "width of the network's second-to-last layer", lower=1)
    emb_size: int = option(128, "length of the embeddings", lower=1)
    num_classes: int = option(20_000, "classes of the head", lower=1)
    steps: int = option(5, "timed steps per round", lower=1)
    rounds: int = option(8, "alternating rounds of measurements", lower=1)
    output: str = option("output/workers", "folder of the chart")


def main(case):
    """Measures, predicts, draws and prints."""
    with machine.report(case) as figures:
        figures |= _figures(case, _measure(case))
        for row in _table(figures):
            print(row)
    folder = pathlib.Path(case.output)
    folder.mkdir(parents=True, exist_ok=True)
    draw(folder / "workers.png", figures["fastest"])


def _measure(case):
    """`{"steps", "fitted", "network": {...: [seconds]}, "weights"}`, all by turns."""
    processes.load()
    counts = sorted(set(case.workers) | {1})
    times = {"steps": {}, "fitted": {}, "network": {}}

    def add(kind, key, seconds):
        times[kind].setdefault(key, []).append(seconds)

    with contextlib.ExitStack() as stack:
        clusters = {n: _Cluster(n, stack) for n in counts}
        for n, cluster in clusters.items():
            sys.stderr.write(f"starting {n}\n")
            cluster.do("start")
            weights = cluster.do("prepare", "main", case, case.images, case.num_classes)
            if n > 1:
                cluster.do("prepare_network")
        for images, share in FITTED:
            shape = (case.images * images, round(case.num_classes * share))
            clusters[1].do("prepare", shape, case, *shape)
        for turn in range(case.rounds):
            sys.stderr.write(f"round {turn + 1} of {case.rounds}\n")
            for images, share in FITTED:
                shape = (case.images * images, round(case.num_classes * share))
                seconds = clusters[1].do("run", shape, case.steps)
                add("fitted", shape, seconds)
            for n, cluster in clusters.items():
                add("steps", n, cluster.do("run", "main", case.steps))
                for name in (*SMALL, "large") if n > 1 else ():
                    add("network", (n, name), cluster.do("run", name, case.steps))
    return {**times, "weights": weights}


class _Cluster:
    """Forked workers that do the same at the same time."""

    def __init__(self, size, stack):
        fork = multiprocessing.get_context("fork")
        ports = free_ports("127.0.0.1", size)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        cores = sorted(os.sched_getaffinity(0))
        self.pipes = []
        for index in range(size):
            ours, theirs = fork.Pipe()
            worker = fork.Process(
                target=one_worker.main,
                args=(theirs, addresses, index, cores[index % len(cores)]),
                daemon=True,
            )
            worker.start()
            theirs.close()
            stack.callback(worker.join)
            stack.callback(worker.kill)
            self.pipes.append(ours)

    def do(self, name, *arguments):
        """What the first worker answers, when all have."""
        for pipe in self.pipes:
            pipe.send((name, arguments))
        return [pipe.recv() for pipe in self.pipes][0]


def _figures(case, measured):
    """Medians over the rounds, and what the model makes of them; the fastest too."""
    rows = _rows(case, measured, statistics.median)
    fastest = _rows(case, measured, min)
    return {
        "steps": rows,
        "fastest": fastest,
        "largest_error": max(abs(row["relative_error"]) for row in rows),
        "largest_error_fastest": max(abs(row["relative_error"]) for row in fastest),
        "weights": measured["weights"],
        "rounds": {str(n): seconds for n, seconds in measured["steps"].items()},
    }


def _rows(case, measured, over_rounds):
    """Measured and predicted seconds of every cluster, of one statistic of the rounds.

    Others on the machine make steps slower, never faster: where it is shared, the
    fastest round says more than the median.
    """
    speeds = step_model.Speeds.fit(
        [
            (images, classes, images, over_rounds(seconds))
            for (images, classes), seconds in measured["fitted"].items()
        ]
    )
    shape = step_model.Shape(
        measured["weights"], case.emb_size, case.num_classes, case.images
    )
    cores, rows = len(os.sched_getaffinity(0)), []
    for n, seconds in measured["steps"].items():
        network, collectives = None, []
        if n > 1:
            network = _network(n, measured["network"], over_rounds)
            collectives = shape.collectives(n)
        terms = step_model.terms(shape, n, speeds, network, math.ceil(n / cores))
        found, predicted = over_rounds(seconds), terms.pop("step")
        rows.append(
            {
                "workers": n,
                "measured_s": found,
                "predicted_s": predicted,
                "relative_error": predicted / found - 1,
                **{f"{name}_s": value for name, value in terms.items()},
                "collectives": sum(one.count for one in collectives),
                "sent_mb": sum(one.sent for one in collectives) / 1e6,
                "latency_s": network.latency if network else None,
                "bandwidth_mb_s": network.bandwidth / 1e6 if network else None,
                "speeds": dataclasses.asdict(speeds),
            }
        )
    return rows


def _network(n, seconds, over_rounds):
    """The `Network` between n workers."""
    small = [over_rounds(seconds[n, name]) for name in SMALL]
    latency = statistics.mean(small) / one_worker.SMALL_CHAIN
    large = over_rounds(seconds[n, "large"]) / one_worker.LARGE_CHAIN
    sent = 2 * (n - 1) / n * 4 * one_worker.LARGE_NUMBERS
    return step_model.Network(latency, sent / max(large - latency, 1e-9))


def _table(figures):
    for kind in ("steps", "fastest"):
        yield {"steps": "Medians of the rounds:", "fastest": "Fastest rounds:"}[kind]
        for row in figures[kind]:
            yield (
                f"{row['workers']} workers: {1e3 * row['measured_s']:.1f} ms per step, "
                f"predicted {1e3 * row['predicted_s']:.1f} (compute "
                f"{1e3 * row['compute_s']:.1f}, softmax {1e3 * row['softmax_s']:.1f}, "
                f"network {1e3 * row['network_s']:.1f}), {row['relative_error']:+.1%}"
            )


def draw(path, steps):
    """Draws measured and predicted milliseconds over the workers into a PNG."""
    from matplotlib.figure import Figure

    figure = Figure((6.2, 4.6), layout="constrained")
    axes = figure.add_subplot(
        title="Milliseconds per step on CPU workers, fastest rounds",
        xlabel="workers",
        ylabel="milliseconds",
        xticks=[row["workers"] for row in steps],
    )
    for name in ("measured", "predicted", "compute", "softmax", "network"):
        axes.plot(
            [row["workers"] for row in steps],
            [1e3 * row[f"{name}_s"] for row in steps],
            "o-" if name == "measured" else "--",
            label=name,
        )
    axes.grid()
    axes.legend()
    figure.savefig(path)


if __name__ == "__main__":
    options.run(main, WorkersCase, __doc__)
