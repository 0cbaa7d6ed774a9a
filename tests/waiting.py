"""Waits for what other threads and processes do."""

import time


def wait_for(condition, limit_s=60):
    """Waits until `condition()` is true; fails after `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
