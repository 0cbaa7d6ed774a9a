"""A training run without progress ends, and everybody says who held it up."""

import re
import signal
import time

from plsc_tf.parallel.addresses import free_addresses
from plsc_tf.parallel.group import SingleWorker
from plsc_tf.training.watchdog import Watchdog
from tests import programs

MOST_S = 120

PRELUDE = """
import sys, time, types
import tensorflow as tf
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.group import Group, SingleWorker
from plsc_tf.training.watchdog import Watchdog

def watching(timeout_s, group, step):
    detector = Watchdog(timeout_s, group)
    trainer = types.SimpleNamespace(position=types.SimpleNamespace(global_step=step))
    detector.set_model(types.SimpleNamespace(trainer=trainer))
    return detector
"""


# Reading from a queue that stays empty waits in C++, as a collective does.
HANGING = """
detector = watching(1.0, SingleWorker(), 57)
detector.on_train_begin()
detector.on_train_batch_begin(0)
def training_step():
    tf.queue.FIFOQueue(1, tf.float32).dequeue()
training_step()
"""


# A worker whose training makes no progress: addresses, index, what it does meanwhile.
WORKER = """
addresses, index, activity = sys.argv[1:]
cluster = Cluster(tuple(addresses.split(",")), int(index), "test")
detector = watching(3, Group(cluster, timeout_s=30, grace_s=1), 7)
detector.on_train_batch_begin(0)
detector.on_train_batch_end(0)
if activity == "step":
    time.sleep(1)
    detector.on_train_batch_begin(1)
def stall():
    time.sleep(1000)
stall()
"""


def test_a_step_that_hangs_in_tensorflow_ends_with_the_stacks():
    done = programs.run("-c", PRELUDE + HANGING, status=75, timeout=MOST_S)
    assert re.search(r"made no progress for \d+ s in: step 58\.", done.err)
    assert "in training_step" in done.err


def test_the_worker_that_holds_up_the_others_is_named_by_all():
    addresses = free_addresses(2)
    worker_1 = re.escape(f"Worker 1 ({addresses[1]})")
    finding = (
        rf"failed: no progress for \d+ s in: .*step 8\. {worker_1} is still in: "
        r"preparing step 8 \(for \d+ s; last .*\); the others wait in: step 8\."
    )
    workers = [
        ("-c", PRELUDE + WORKER, ",".join(addresses), index, activity)
        for index, activity in enumerate(("step", "preparing"))
    ]
    for done in programs.run_together(workers, status=75, timeout=MOST_S):
        assert re.search(finding, done.err), done.err
        assert "in stall" in done.err


def test_progress_and_the_end_of_training_are_no_stalls():
    detector = Watchdog(0.4, SingleWorker())  # or this process would end here
    detector.start()
    for step in range(6):
        detector.begin(f"step {step}")
        time.sleep(0.1)
    for _ in range(6):
        detector.heartbeat()
        time.sleep(0.1)
    detector.stop()
    time.sleep(0.6)


def test_a_process_that_was_suspended_has_not_stalled():
    script = """
detector = Watchdog(2.0, SingleWorker())
detector.start()
print("ready", flush=True)
for _ in range(5):
    time.sleep(0.1)
detector.stop()
"""
    with programs.start("-c", PRELUDE + script) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
        assert process.wait(MOST_S) == 0
