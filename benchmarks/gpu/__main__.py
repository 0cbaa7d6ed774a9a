"""Shows on one GPU whether plsc_tf is correct and fast, step by step.

Each of the steps A to G takes less than eight minutes and prints one JSON object; the
output folder holds the same objects, a page with tables, and a log. A part that fails
is reported, and the next one runs. benchmarks/README.md explains the steps.

    python -m benchmarks.gpu
    python -m benchmarks.gpu --step=B,C --peer=insightface --peer_python=python3
    python -m benchmarks.gpu --toy              # on a CPU, to try the programme
"""

import dataclasses
import datetime
import json
import os
import pathlib
import sys
import time

from benchmarks import machine, options
from benchmarks.gpu import heads, page, parts, smoke, steps
from plsc_tf.flags.option import OptionGroup, option

LETTERS = "a b c d e f g"
# A part needs at least as many seconds to start TensorFlow and compile a step.
SHORTEST_S = 30
TOY_LIMIT_S = 500


class GpuCase(OptionGroup):
    """What to run."""

    step: tuple[str, ...] = option((), "steps to run; empty: all", choices=LETTERS)
    toy: bool = option(False, "toy sizes, in one process")
    output: str = option("output/gpu", "folder of the results; earlier ones are kept")
    peer: str = option("", "checkout of insightface to compare with; empty: none")
    peer_python: str = option(sys.executable, "a Python that has PyTorch, for --peer")
    images: str = option("", "folder of .jpg files for step D; empty: drawn images")
    step_limit_s: int = option(
        470, "seconds after which a step starts no part", lower=1
    )


def main(case):
    """Runs the steps; returns the exit status, 1 if a part failed."""
    folder = pathlib.Path(case.output).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    case = dataclasses.replace(case, output=str(folder))
    letters = [one.upper() for one in case.step or LETTERS.split()]
    chosen = [step for step in steps.programme(case) if step.letter in letters]
    gpu = {name: smoke.nvidia_smi(name) for name in ("name", "driver_version")}
    about = {"toy": case.toy, "gpu": gpu, "machine": machine.describe()}
    log, failed, known = folder / "log.txt", 0, {}
    if case.toy:
        every = [part for step in chosen for part in step.parts]
        lines = parts.run(every, log, TOY_LIMIT_S)
        known = {
            (part.step, part.name): line
            for part, line in zip(every, lines, strict=True)
        }
    for step in chosen:
        now, start = datetime.datetime.now(datetime.UTC), time.monotonic()
        report = {"step": step.letter, "title": step.title, **about}
        report |= {"date": now.isoformat(timespec="seconds"), "seconds": 0, "parts": []}
        for part in step.parts:
            left = case.step_limit_s - (time.monotonic() - start)
            line = known.get((part.step, part.name)) or _measured(part, log, left)
            report["parts"].append({"name": part.name, **line})
            report["seconds"] = round(report["seconds"] + (line["seconds"] or 0), 1)
            if step.letter == "C":
                report["compared"] = heads.compared(report["parts"])
            # At once: the machine may be taken away before the step ends.
            _replace(folder / f"{step.letter}.json", json.dumps(report, indent=1))
            _replace(folder / page.NAME, page.text(folder))
            _tell(part, line)
            failed += "error" in line
        print(json.dumps(report), flush=True)
    sys.stderr.write(f"{folder / page.NAME}: {failed} part(s) failed\n")
    return 1 if failed else 0


def _measured(part, log, left):
    """Returns the outcome of a part, which may take `left` seconds."""
    if left < SHORTEST_S:
        return {"seconds": 0, "error": "was not started: the time of its step was over"}
    return parts.run([part], log, min(part.limit_s, left))[0]


def _replace(path, text):
    """Writes a file so that it is never seen half written."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


def _tell(part, line):
    """Writes a line about a part to the standard error."""
    figures = {
        name: value
        for name, value in line.get("figures", {}).items()
        if name != "details" and value is not None
    }
    said = line.get("error") or line.get("skipped") or json.dumps(figures)
    sys.stderr.write(f"{part.step} {part.name}: {said} ({line['seconds']} s)\n")


if __name__ == "__main__":
    sys.exit(main(options.parse(GpuCase, __doc__)))
