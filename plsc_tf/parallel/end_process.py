"""Ending a process whose main thread does not answer."""

import faulthandler
import os
import sys
import threading

from absl import logging

# Nobody may read what is written at the end, and then writing takes for ever.
WRITE_S = 5.0


def end_process(status, *lines):
    """Logs the lines, writes the stacks of all threads to stderr, and ends.

    Args:
        status: the exit status.
        *lines: what to log as errors.
    """
    threading.Timer(WRITE_S, os._exit, (status,)).start()
    for line in lines:
        logging.error("%s", line)
    faulthandler.dump_traceback(sys.__stderr__)
    sys.stdout.flush()
    os._exit(status)
