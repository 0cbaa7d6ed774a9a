"""Reads mutated files in a process of its own, with a limit on memory and on time.

    python -m tests.fuzz.driver <folder> <number of mutations> <seed>

The last line on standard output is a JSON object. A crash or a file that takes too long
ends the process; the file `current` in the folder then says which mutation it was.
"""

import collections
import faulthandler
import json
import pathlib
import re
import resource
import shutil
import sys

SECONDS_PER_FILE = 30
# TensorFlow refuses pictures of more than 512 MB, which it does allocate.
ALLOWED_MB = 1536
# A place within a file; or what is said of a file as a whole.
_PLACE = re.compile(
    r"(byte|bytes|line|record|image|picture|example|entry|number) \d+"
    r"|\d+ (bytes|images|labels|entries|classes|pictures)|x\.jpg"
    r"|empty|is cut off|Expected \(images|is refused|holds no|Found: |starts with"
    r"|is not (an index|a .npy file)|no (records|images|pairs)"
    r"|must |checkpoint format|format.\)|cannot be read|does not hold|fit this model"
    r"|has data elsewhere|state(\.| lacks)|with the optimizer "
)


def main(folder, count, seed, only=""):
    """Reads the mutations, perhaps of one target only; prints what came of them."""
    import tensorflow as tf

    from tests.fuzz.checkpoints import Checkpoint
    from tests.fuzz.targets import targets

    rejections = (ValueError, OSError, EOFError, tf.errors.OpError)
    found = {"checkpoint": Checkpoint()} if only else targets()
    names = list(found)
    seen, problems = {name: collections.Counter() for name in names}, []
    for warm_up in (True, False):
        for number in range(len(names) if warm_up else count):
            name = names[number % len(names)]
            place = folder / name
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            found[name].write(place, f"{seed} {number}")
            (folder / "current").write_text(f"{name} {seed} {number}")
            faulthandler.dump_traceback_later(SECONDS_PER_FILE, exit=True)
            outcome, problem = _read(found[name], found[name].read, place, rejections)
            if warm_up or number // len(names) % 20 == 19:
                for how in (found[name].train, found[name].convert):
                    problem = problem or _read(found[name], how, place, rejections)[1]
            if found[name].data_set and number // len(names) % 4 == 0:
                problem = problem or _check(found[name], place, rejections)
            faulthandler.cancel_dump_traceback_later()
            if not warm_up:
                seen[name][outcome] += 1
            if problem:
                problems.append(f"{name} {seed} {number}: {problem}")
        if warm_up:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            _limit_memory()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = {
        "seen": {name: dict(counts) for name, counts in seen.items()},
        "problems": problems[:50],
        "grown_mb": (after - before) // 1024,
    }
    sys.stdout.write(json.dumps(result) + "\n")


def _read(target, read, folder, rejections):
    """Returns ("read" or "rejected", what is wrong with the rejection or "")."""
    try:
        read(folder)
    except rejections as error:
        text = str(error)
        if target.name.rpartition("/")[2] not in text and str(folder) not in text:
            return "rejected", f"names no file: {type(error).__name__}: {text[:300]}"
        if not _PLACE.search(text.replace(str(folder), "")):
            return "rejected", f"names no place: {type(error).__name__}: {text[:300]}"
        return "rejected", ""
    except Exception as error:  # noqa: BLE001
        return "failed", f"{type(error).__name__}: {str(error)[:300]}"
    return "read", ""


def _check(target, folder, rejections):
    """Returns what is wrong with the data check on this file, or ""."""
    try:
        target.check_data(folder)
    except rejections as error:
        if str(folder) not in str(error):
            return f"check names no file: {type(error).__name__}: {str(error)[:300]}"
    except Exception as error:  # noqa: BLE001
        return f"check: {type(error).__name__}: {str(error)[:300]}"
    return ""


def _limit_memory():
    """Allows so much more address space than is in use now."""
    status = pathlib.Path("/proc/self/status").read_text()
    used = int(re.search(r"VmSize:\s+(\d+) kB", status).group(1)) * 1024
    limit = used + ALLOWED_MB * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
