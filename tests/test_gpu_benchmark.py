"""The programme for a GPU: every step at toy size, and what it does when one fails."""

import json

from benchmarks.gpu import __main__ as programme, page, parts


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
    told = "ended with status 3 before its result; see the log"
    assert [line["error"] for line in found[3:]] == [told] * 2
    [slow] = parts.run([part("slow", "signal.pause")], log, limit_s=1)
    assert slow["error"] == "was ended after 1 s, its time limit"
    assert "JSONDecodeError" in log.read_text()
