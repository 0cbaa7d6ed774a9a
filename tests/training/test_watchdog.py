"""A training run without progress ends, and everybody says who held it up."""

import re
import time
import types

import pytest

from plsc_tf.parallel.addresses import free_addresses
from plsc_tf.training import watchdog
from plsc_tf.training.watchdog import Watchdog, who_is_behind
from tests import programs

MOST_S = 120

# Reading from a queue that stays empty waits in C++, as a collective does.
HANGING = """
import types
import tensorflow as tf
from plsc_tf.training.watchdog import Watchdog, who_is_behind

watchdog = Watchdog(1.0)
position = types.SimpleNamespace(global_step=57)
trainer = types.SimpleNamespace(position=position)
watchdog.set_model(types.SimpleNamespace(trainer=trainer))
watchdog.on_train_begin()
watchdog.on_train_batch_begin(0)
def training_step():
    tf.queue.FIFOQueue(1, tf.float32).dequeue()
training_step()
"""


# A worker whose training makes no progress: addresses, index, what it does meanwhile.
WORKER = """
import sys, time, types
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.group import Group
from plsc_tf.training.watchdog import Watchdog

addresses, index, activity = sys.argv[1:]
cluster = Cluster(tuple(addresses.split(",")), int(index), "test")
detector = Watchdog(3, Group(cluster, timeout_s=30, grace_s=1))
trainer = types.SimpleNamespace(position=types.SimpleNamespace(global_step=7))
detector.set_model(types.SimpleNamespace(trainer=trainer))
detector.on_train_batch_begin(0)
detector.on_train_batch_end(0)
if activity == "step":
    time.sleep(0.1)
    detector.on_train_batch_begin(1)
def stall():
    time.sleep(1000)
stall()
"""


def test_a_step_that_hangs_in_tensorflow_ends_with_the_stacks():
    done = programs.run("-c", HANGING, status=75, timeout=MOST_S)
    assert re.search(r"No progress for \d+ s in: step 58\.", done.err)
    assert "in training_step" in done.err


def test_the_worker_that_holds_up_the_others_is_named_by_all():
    addresses = free_addresses(2)
    worker_1 = re.escape(f"Worker 1 ({addresses[1]})")
    finding = (
        rf"failed: no progress for \d+ s\. {worker_1} is still in: preparing step "
        r"8 \(for \d+ s\); the others wait in: step 8\."
    )
    workers = [
        ("-c", WORKER, ",".join(addresses), index, activity)
        for index, activity in enumerate(("step", "preparing"))
    ]
    for done in programs.run_together(workers, status=75, timeout=MOST_S):
        assert re.search(finding, done.err), done.err
        assert "in stall" in done.err


def test_progress_and_the_end_of_training_are_no_stalls():
    detector = Watchdog(0.4)  # or this process would end here
    detector.start()
    for step in range(6):
        detector.begin(f"step {step}")
        time.sleep(0.1)
    for _ in range(6):
        detector.heartbeat()
        time.sleep(0.1)
    detector.stop()
    time.sleep(0.6)


def test_a_process_that_was_suspended_has_not_stalled(monkeypatch):
    """While a process is suspended, nothing runs but the clock."""
    clock, ended = types.SimpleNamespace(monotonic=time.monotonic), []

    def end(*found):
        ended.append(found)
        raise SystemExit  # ends the thread

    monkeypatch.setattr(watchdog, "time", clock)
    monkeypatch.setattr(watchdog, "end_process", end)
    detector = Watchdog(0.8)
    detector.start()
    detector.begin("a step")
    time.sleep(0.3)
    clock.monotonic = lambda: time.monotonic() + 100
    time.sleep(0.4)
    assert not ended
    # But a step that then makes no progress ends the process.
    time.sleep(1.2)
    detector.stop()
    assert len(ended) == 1


def test_a_time_limit_must_be_positive():
    with pytest.raises(ValueError, match="Received: timeout_s=0"):
        Watchdog(0)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (
            [("step 8", 20.1, 0), ("step 8", 20.4, 1), ("step 8", 20.2, 1)],
            "All workers are in: step 8 (for 20 s). A collective or the computation "
            "itself hangs.",
        ),
        (  # the majority may be the one that is behind
            [("reading", 22.0, 0), ("reading", 21.0, 1), ("step 8", 20.8, 1)],
            "W0 is still in: reading (for 22 s); W1 is still in: reading (for 21 s); "
            "the others wait in: step 8.",
        ),
        (
            [("step 8", 20.1, 0), ("step 8", 20.4, 12.3), ("reading", 20.2, 1)],
            "W1 has not reported for 12 s. Its last activity: step 8.",
        ),
    ],
)
def test_who_is_behind(states, expected):
    assert who_is_behind(["W0", "W1", "W2"], states) == expected
