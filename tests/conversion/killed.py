"""A process that lets conversions be killed: `python -m tests.conversion.killed SPEC`.

SPEC is JSON: {"paths", "output", "layout", "kills", "seed", "mode"}. With mode
"moments" each attempt is killed after a random time; with "steps" it kills itself
before its n-th flush, renaming or removal. It fails if an output differs from
that of an attempt that nobody killed.
"""

import json
import os
import random
import shutil
import signal
import sys
import time

from plsc_tf.data.conversion import run
from plsc_tf.data.conversion.inputs import Base64Input, RecordInput
from tests.conversion import drawn

CALLS = ("fsync", "replace", "rename", "remove", "rmdir", "unlink")


def convert(spec):
    """What each attempt does; blocks and intervals are small, so that they are many."""
    kind = {"base64": Base64Input, "tfrecord": RecordInput}[spec["origin"]]
    source = kind(spec["paths"])
    source.num_buckets = lambda: 5
    plan = run.ConversionPlan(
        spec["output"],
        output_format=spec["layout"],
        num_shards=3,
        shuffle=spec["shuffle"],
        pad=True,
        seed=1,
        memory_mb=0.2,
        commit_every_s=0,
    )
    run.convert(source, plan)


def attempt(spec, delay_s=None, steps=None):
    """Whether a conversion in a process of its own was killed."""
    child = os.fork()
    if not child:
        try:
            if steps is not None:
                die_before(steps)
            convert(spec)
        except BaseException as error:  # noqa: BLE001 - the process ends
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    if delay_s is not None:
        end = time.monotonic() + delay_s
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return check(status)
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    return check(os.waitpid(child, 0)[1])


def check(status):
    """Whether the process was killed; ends this one if it failed."""
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        sys.exit("an attempt failed")
    return code != 0


def die_before(steps):
    """Makes the process kill itself before so many calls of the system."""
    left = [steps]

    def counted(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def main(spec):
    """Converts again and again until enough attempts were killed; compares outputs."""
    rng, killed, outputs = random.Random(spec["seed"]), 0, 0
    start = time.monotonic()
    attempt({**spec, "output": spec["output"] + "-undisturbed"})
    taken = time.monotonic() - start
    expected = drawn.digests(spec["output"] + "-undisturbed")
    while killed < spec["kills"] or not outputs:
        options = {}
        if killed < spec["kills"] and spec["mode"] == "moments":
            options = {"delay_s": rng.uniform(0, 0.7 * taken)}
        elif killed < spec["kills"]:
            options = {"steps": rng.randrange(1, 60)}
        if attempt(spec, **options):
            killed += 1
            continue
        if drawn.digests(spec["output"]) != expected:
            sys.exit("the output differs")
        outputs += 1
        shutil.rmtree(spec["output"])
    attempt(spec)
    if drawn.digests(spec["output"]) != expected:
        sys.exit("the last output differs")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
