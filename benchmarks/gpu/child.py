"""Carries out parts of a step; started by `benchmarks.gpu.parts`.

The parts come as JSON on the standard input. For each of them, a line of JSON is
appended to the file that the command line names.
"""

import importlib
import json
import sys
import time
import traceback

from benchmarks.gpu.parts import NotAvailableError
from benchmarks.machine import rounded

LONGEST = 2000


def main(path, parts):
    """Carries out parts and appends what they find to a file."""
    for part in parts:
        start = time.perf_counter()
        line = outcome(part)
        line["seconds"] = round(time.perf_counter() - start, 1)
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def outcome(part):
    """Returns `figures`, `skipped` or `error` of a part, as a dict."""
    module, _, name = part["function"].rpartition(".")
    try:
        figures = getattr(importlib.import_module(module), name)(**part["arguments"])
    except NotAvailableError as error:
        return {"skipped": str(error)}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the next part is run
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"[:LONGEST]}
    return {"figures": rounded(figures)}


if __name__ == "__main__":
    main(sys.argv[1], json.load(sys.stdin))
