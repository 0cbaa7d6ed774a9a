"""The programme for a GPU: every step at toy size, and what it does when one fails."""

import json

from tensorflow.tsl.profiler.protobuf import xplane_pb2

from benchmarks.gpu import __main__ as programme
from benchmarks.gpu import capacity, page, parts, profile


def test_every_step_runs_at_toy_size(tmp_path, capsys):
    case = programme.GpuCase(toy=True, output=str(tmp_path))
    assert programme.main(case) == 0, (tmp_path / "log.txt").read_text()
    printed = map(json.loads, capsys.readouterr().out.splitlines())
    steps = {report["step"]: report for report in printed}
    assert list(steps) == list("ABCDEFG")
    figures, skipped = {}, {}
    for letter, report in steps.items():
        assert json.loads((tmp_path / f"{letter}.json").read_text()) == report
        for part in report["parts"]:
            figures[letter, part["name"]] = part.get("figures")
            if "skipped" in part:
                skipped[letter, part["name"]] = part["skipped"]
    assert figures["A", "training and resume"]["steps"] == 10
    assert figures["E", "planned memory"]["memory_gb"] > 0
    assert figures["F", "replicas: 1"] == {"replicas": "[1]", "cases": 1, "equal": 1}
    assert figures["G", "plsc_tf"]["most_classes"] == 500
    # Without a checkout, arcface_torch is left out, and nothing else is.
    assert skipped and all("arcface_torch" in name for _, name in skipped)
    assert all("--peer" in reason for reason in skipped.values())
    assert [name for name, found in figures.items() if not found] == list(skipped)
    shown = (tmp_path / page.NAME).read_text()
    assert shown.count("<h2>") == 7
    assert all(name in shown for _, name in figures)


def test_a_part_that_fails_is_reported_and_the_next_one_runs(tmp_path):
    def part(name, function, **arguments):
        return parts.Part("A", name, function, arguments)

    several = [
        part("figures", "builtins.dict", number=1.23456789),
        part("error", "json.loads", s="{"),
        part("next", "builtins.dict", word="yes"),
        part("crash", "os._exit", status=3),
        part("lost", "builtins.dict"),
    ]
    log = tmp_path / "log.txt"
    found = parts.run(several, log, limit_s=60)
    assert found[0]["figures"] == {"number": 1.23457}
    assert found[1]["error"].startswith("JSONDecodeError: Expecting property name")
    assert found[2]["figures"] == {"word": "yes"}
    assert [line["error"] for line in found[3:]] == [
        "ended with status 3 before its result; see the log"
    ] * 2
    [slow] = parts.run([part("slow", "signal.pause")], log, limit_s=1)
    assert slow["error"] == "was ended after 1 s, its time limit"
    assert "JSONDecodeError" in log.read_text()


def test_a_trace_is_added_up():
    space = xplane_pb2.XSpace()
    space.planes.add(name="/host:CPU")
    gpu = space.planes.add(name="/device:GPU:0 (made up)")
    names = ["sgemm", "MemcpyD2H", "MemcpyH2D", "ncclDevKernel_AllReduce"]
    for number, name in enumerate(names):
        gpu.event_metadata[number].name = name
    gpu.stat_metadata[7].name = "memcpy_details"

    def add(line, kind, start_us, duration_us, size=None):
        event = line.events.add(metadata_id=names.index(kind))
        event.offset_ps, event.duration_ps = start_us * 10**6, duration_us * 10**6
        if size:
            event.stats.add(metadata_id=7).str_value = f"kind_src:device size:{size} x"

    compute, copies = (gpu.lines.add(name=f"Stream #{i}") for i in (1, 2))
    # From 0 to 100 µs: busy until 30, from 40 to 60 (twice at once) and from 90 on.
    for start, duration in ((0, 30), (40, 10), (90, 10)):
        add(compute, "sgemm", start, duration)
    add(copies, "ncclDevKernel_AllReduce", 45, 15)
    add(copies, "MemcpyD2H", 61, 2, size=4)
    add(copies, "MemcpyH2D", 70, 2, size=2_000_000)
    gpu.lines.add(name="Steps").events.add(metadata_id=0, duration_ps=10**12)
    found = profile.summary(space.SerializeToString(), 2)
    assert found.pop("details")["longest_ms"]["sgemm"] == 0.025
    assert {name: round(value, 6) for name, value in found.items()} == {
        "kernels": 2,
        "copies_to_host": 0.5,
        "copies_to_gpu": 0.5,
        "mb_to_host": 2e-6,
        "mb_to_gpu": 1,
        "traced_ms": 0.05,
        "busy_ms": 0.03,
        "idle_share": 0.4,
    }


def test_the_largest_number_that_fits_is_found_in_few_trials():
    tried = []

    def fits(number):
        tried.append(number)
        return number <= 1000

    best, least = capacity.search(fits, 900, trials=6)
    assert best <= 1000 < least and least - best < 50
    assert len(tried) == 6
    # 2000, 1600, 1280, 1024, 819, then between 819 and 1024.
    assert capacity.search(fits, 2000, trials=6) == (921, 1024)
    assert capacity.search(fits, 900, trials=6, most=950) == (950, None)
