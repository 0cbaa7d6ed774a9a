"""Time and memory of the head over the number of classes and of replicas.

Every point is a process of `benchmarks.head`; options that are not listed here are
passed on to it. Writes points.jsonl and head_scaling.png to the output folder.

    python -m benchmarks.head_scaling
    python -m benchmarks.head_scaling --num_classes=10000,100000 --replicas=2
"""

import dataclasses
import itertools
import json
import math
import operator
import pathlib
import sys
import time

from benchmarks import chart, children, machine, options
from benchmarks.head import least_memory
from plsc_tf.flags.option import OptionGroup, option

COLORS = ("#1b6ca8", "#d1495b", "#3a7d44", "#8f5aa8", "#b8860b")
GREY = "#777777"


class ScalingCase(OptionGroup):
    """Which points to measure."""

    num_classes: tuple[int, ...] = option(
        (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000, 4_500_000),
        "numbers of classes",
        lower=1,
    )
    replicas: tuple[int, ...] = option((2, 1, 4), "numbers of replicas", lower=1)
    most_classes: int = option(
        1_000_000,
        "larger heads are measured on the first number of replicas only",
        lower=1,
    )
    emb_size: int = option(512, "length of the embeddings", lower=1)
    global_batch: int = option(64, "examples per step over all replicas", lower=1)
    sample_rate: float = option(1.0, "fraction of classes in a step", within="(0, 1]")
    optimizer: str = option("momentum", "see benchmarks.head")
    margins: str = option("arcface", "see benchmarks.head")
    head_dtype: str = option("", "see benchmarks.head")
    tile_rows: int | None = option(None, "see benchmarks.head", lower=1)
    logits_mb: int | None = option(None, "see benchmarks.head", lower=0)
    steps: int = option(5, "timed steps per point", lower=1)
    warmup: int = option(2, "untimed steps before those", lower=1)
    output: str = option("output/head_scaling", "folder of the points and the chart")
    redraw: bool = option(False, "only draw the points already in the folder")

    def cases(self):
        """The `HeadCase` of every point; without products where they do not fit."""
        fields = {field.name for field in dataclasses.fields(options.HeadCase)}
        common = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name in fields and name != "num_classes"
        }
        free = machine.available_memory()
        for classes in sorted(self.num_classes):
            for replicas in self.replicas:
                if classes > self.most_classes and replicas != self.replicas[0]:
                    continue
                case = options.HeadCase(
                    num_classes=classes, num_replicas=replicas, **common
                )
                fits = least_memory(case) < 0.9 * free
                yield dataclasses.replace(case, products=fits)


def main(case):
    """Measures the points one after the other, and draws them."""
    folder = pathlib.Path(case.output)
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / "points.jsonl"
    if not case.redraw:
        record.write_text("", encoding="utf-8")
        cases = list(case.cases())
        start = time.perf_counter()
        for i, point in enumerate(cases):
            spent = time.perf_counter() - start
            sys.stderr.write(
                f"point {i + 1} of {len(cases)}: {point.num_classes} classes, "
                f"{point.num_replicas} replicas ({spent:.0f} s so far)\n"
            )
            line = json.dumps(_measure(point))
            with record.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
    lines = record.read_text(encoding="utf-8").splitlines()
    points = [json.loads(line) for line in lines]
    for point in points:
        print(_row(point))
    measured = [point for point in points if "error" not in point]
    if not measured:
        raise ValueError(f"No point in {record} has been measured.")
    picture = folder / "head_scaling.png"
    chart.save(picture, panels(measured))
    print(json.dumps({"points": str(record), "chart": str(picture)}))


def panels(points):
    """The two panels, seconds and memory over classes, of points as measured."""
    replicas = sorted({p["parameters"]["num_replicas"] for p in points})
    times, memories = [], []
    for count, color in zip(replicas, itertools.cycle(COLORS), strict=False):
        own = [p for p in points if p["parameters"]["num_replicas"] == count]
        label = f"{count} replica{'s' if count > 1 else ''}"
        times.append(
            chart.Line(label, _over_classes(own, operator.itemgetter("step_s")), color)
        )
        memories.append(chart.Line(label, _over_classes(own, _memory), color))
    bare = [p for p in points if "products_s" in p]
    bare = _over_classes(bare, operator.itemgetter("products_s"))
    if bare:
        times.append(chart.Line("bare products", bare, GREY, dashed=True))
    state = _over_classes(points, _weights_and_slots)
    memories.append(chart.Line("weights + slots", state, GREY, dashed=True))
    shown = points[0]["parameters"]
    setting = f"{shown['emb_size']} wide, batch {shown['global_batch']}"
    return [
        chart.Panel(f"Seconds per step, {setting}", "classes", "seconds", times),
        chart.Panel(f"Peak memory, {setting}", "classes", "gigabytes", memories),
    ]


def _over_classes(points, value):
    """(classes, smallest value) by number of classes."""
    found = {}
    for point in points:
        classes = point["parameters"]["num_classes"]
        found[classes] = min(value(point), found.get(classes, math.inf))
    return sorted(found.items())


def _memory(point):
    return sum(point.get("peak_device_gb", [point["peak_rss_gb"]]))


def _weights_and_slots(point):
    case = options.HeadCase(**point["parameters"])
    return 4e-9 * case.num_classes * case.emb_size * (1 + case.slots)


def _measure(point):
    """What a process of `benchmarks.head` prints, or its error."""
    try:
        return children.last_line("-m", "benchmarks.head", *options.arguments(point))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1]
        return {"parameters": dataclasses.asdict(point), "error": reason}


def _row(point):
    shape = point["parameters"]
    start = f"{shape['num_classes']:>9} classes, {shape['num_replicas']} replicas: "
    if "error" in point:
        return start + point["error"]
    ratio = f", {point['ratio']:.2f} x products" if "ratio" in point else ""
    return (
        f"{start}{point['step_s']:.3f} s{ratio}, {point['peak_rss_gb']:.2f} GB, "
        f"{point['bytes_per_class']:.0f} bytes per class"
    )


if __name__ == "__main__":
    options.run(main, ScalingCase, __doc__)
