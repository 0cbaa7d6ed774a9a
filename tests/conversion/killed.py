"""Conversions in processes that are killed."""

import os
import signal
import sys

from plsc_tf.data.conversion import run
from plsc_tf.data.conversion.inputs import FilesInput
from plsc_tf.data.readers.formats import FORMATS

CALLS = ("fsync", "replace", "rename", "remove", "rmdir", "unlink")


def convert(layout, paths, output, shuffle=True):
    """What each attempt does; blocks and intervals are small, so that they are many."""
    source = FilesInput(FORMATS[layout], paths)
    source.num_buckets = lambda: 5
    options = {"num_shards": 3, "shuffle": shuffle, "pad": True, "seed": 1}
    options |= {"output_format": layout, "memory_mb": 0.2, "commit_every_s": 0}
    run.convert(source, run.ConversionPlan(str(output), **options))


def attempt(*arguments, steps):
    """Whether a conversion in a process of its own was killed.

    Args:
        *arguments: of `convert`.
        steps: it kills itself before its n-th flush, renaming or removal.
    """
    if not (child := os.fork()):
        try:
            die_before(steps)
            convert(*arguments)
        except BaseException as error:  # noqa: BLE001 - the process ends
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
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
